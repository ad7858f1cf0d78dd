// The table lineitem of the TPC-H benchmark.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/bytes.h"
#include "common/schema/row.h"
#include "common/schema/schema.h"

namespace loam::bench {

/// A row of lineitem. The texts live as long as the generator.
struct LineItem {
  /// Numbers of the fields, in the order of the specification.
  enum Field : uint16_t {
    kOrderKey,
    kPartKey,
    kSupplierKey,
    kLineNumber,
    kQuantity,
    kExtendedPrice,
    kDiscount,
    kTax,
    kReturnFlag,
    kLineStatus,
    kShipDate,
    kCommitDate,
    kReceiptDate,
    kShipInstruct,
    kShipMode,
    kComment
  };

  int64_t order_key = 0, part_key = 0, supplier_key = 0;
  int32_t line_number = 0;
  int64_t quantity = 0, extended_price = 0, discount = 0, tax = 0;  ///< in hundredths
  std::string_view return_flag, line_status;
  int32_t ship_date = 0, commit_date = 0, receipt_date = 0;  ///< days since 1970-01-01
  std::string_view ship_instruct, ship_mode, comment;
};

/// Number of orders at scale factor 1.
inline constexpr size_t kOrdersOfScale1 = 1'500'000;

/// Digits and scale of the decimals.
inline constexpr uint8_t kMoneyDigits = 15, kMoneyScale = 2;

/// The fields, with the names of the specification.
Schema lineitem_schema();
/// The type of a field as DuckDB writes it.
std::string duckdb_type(FieldType type);
/// Returns the row of the table. The bytes belong to the builder.
Bytes build(RowBuilder& builder, const LineItem& line);
/// The values as texts, with | between them.
std::string text_of(const LineItem& line);

/// Generates lineitem row by row, by the rules of the TPC-H specification [4.2.3], in the order of the order keys. Each
/// order has 1 to 7 lines. The same number of orders and the same seed give the same rows. Threads: one.
class LineItemGenerator {
 public:
  /// The scale factor is `orders` over kOrdersOfScale1.
  LineItemGenerator(size_t orders, uint64_t seed);
  ~LineItemGenerator();

  /// Number of rows.
  size_t rows() const;
  /// The next row. At most rows() calls.
  LineItem next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loam::bench
