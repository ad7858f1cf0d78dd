#include "commit-manager/src/manager/run_recoverer.h"

#include <memory>
#include <utility>

namespace loam::commit {
namespace {

class Running final : public RecoveryWorker {
 public:
  explicit Running(std::unique_ptr<client::Recoverer> recoverer) : recoverer_(std::move(recoverer)) {}

  void set_catalog(wire::Catalog catalog) override { recoverer_->set_catalog(std::move(catalog)); }
  void add(std::vector<client::RecoveryTask> tasks) override { recoverer_->add(std::move(tasks)); }
  void acknowledged(TransactionId id) override { recoverer_->acknowledged(id); }
  void scan() override { recoverer_->scan(); }
  void sweep(wire::FenceSet ended) override { recoverer_->sweep(std::move(ended)); }
  void accept_unreadable(TransactionId id) override { recoverer_->accept_unreadable(id); }
  client::RecovererStatistics statistics() const override { return recoverer_->statistics(); }

 private:
  const std::unique_ptr<client::Recoverer> recoverer_;
};

}  // namespace

StartRecovery run_recoverer(net::Scheme scheme) {
  return [scheme](client::RecovererOptions options) -> Result<std::unique_ptr<RecoveryWorker>> {
    options.scheme = scheme;
    LOAM_ASSIGN_OR_RETURN(auto recoverer, client::Recoverer::start(std::move(options)));
    std::unique_ptr<RecoveryWorker> running = std::make_unique<Running>(std::move(recoverer));
    return running;
  };
}

}  // namespace loam::commit
