// The project's version, as binaries and the protocol tell it.
#ifndef TIDETAPE_SERVER_COMMON_VERSION_H_
#define TIDETAPE_SERVER_COMMON_VERSION_H_

namespace tidetape::server {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_COMMON_VERSION_H_
