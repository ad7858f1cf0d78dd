// Configuration files of a cluster on one host, with places to fill in. The texts are commit-manager.toml and
// storage-node.toml beside this file, put into the program when it is built.
#pragma once

#include <string_view>

namespace loam::local {

/// Places: {address}, {admin_address}, {nodes}, {dir}.
extern const std::string_view kCommitManagerTemplate;
/// Places: {address}, {admin_address}, {manager}, {memory}, {dir}.
extern const std::string_view kStorageNodeTemplate;

}  // namespace loam::local
