// The files of the status page, which the build compresses and embeds.
#pragma once

#include <string_view>

namespace loam {

/// One file of the status page. A constant of static storage duration.
struct PageFile {
  std::string_view path;          ///< of the HTTP request, such as "/" or "/page/status.js"
  std::string_view content_type;  ///< value of the HTTP header Content-Type
  std::string_view gzip;          ///< the contents, compressed by gzip
};

/// Returns the file of a path; nullptr if there is none. common/admin/page/embed.py writes the definition.
const PageFile* find_page_file(std::string_view path);

}  // namespace loam
