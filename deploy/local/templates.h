// Templates of the configuration files of a cluster on one host. The texts are commit-manager.toml and
// storage-node.toml beside this file; the build includes them in the program. A placeholder is a name in braces.
#pragma once

#include <string_view>

namespace loam::local {

/// Template of the commit manager. Placeholders: {address}, {admin_address}, {nodes}, {dir}.
extern const std::string_view kCommitManagerTemplate;
/// Template of a storage node. Placeholders: {address}, {admin_address}, {manager}, {memory}, {dir}.
extern const std::string_view kStorageNodeTemplate;

}  // namespace loam::local
