#include "common/net/transport/transport.h"

#include <cstring>

namespace loam::net {

Status Connection::send(Bytes message) {
  std::byte* room = reserve(message.size());
  if (room == nullptr) return refusal(message.size());
  std::memcpy(room, message.data(), message.size());
  commit(message.size());
  return ok_status();
}

Result<Listener*> Transport::listen(const Address& address, Handler& handler) {
  const AcceptTarget target{this, &handler};
  return listen(address, std::span(&target, 1));
}

}  // namespace loam::net
