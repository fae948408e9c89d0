// How a client of the planner service proves who it is, and who the server is: certificates and a token, from files.
#ifndef TIDETAPE_NET_CLIENT_SECURITY_H_
#define TIDETAPE_NET_CLIENT_SECURITY_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tidetape::net {

// Names of PEM files and of a file that holds a token; empty where there is none.
struct ClientSecurity {
  // Certificates of the authorities that vouch for the server. Set: the connection is encrypted.
  std::string ca_file;
  // The client's own certificate and key, for servers that ask for one.
  std::string certificate_file;
  std::string key_file;
  // Name in the server's certificate, where it is not the host that is connected to.
  std::string server_name;
  // The token is the file's content without white space around it.
  std::string token_file;
};

// From TIDETAPE_TLS_CA, TIDETAPE_TLS_CERT, TIDETAPE_TLS_KEY, TIDETAPE_TLS_NAME and TIDETAPE_TOKEN_FILE.
ClientSecurity SecurityFromEnvironment();

// What the files hold.
class ClientCredentials {
 public:
  // Reads the files. Errors name the file and say what is wrong, never what is in it; FailedPrecondition where a token would go
  // unencrypted to another machine than this one, or a certificate has no key.
  static absl::StatusOr<ClientCredentials> Load(const ClientSecurity& security, const std::string& address);

  // For a channel; sets what else the channel needs.
  std::shared_ptr<grpc::ChannelCredentials> ForChannel(grpc::ChannelArguments& arguments) const;

  // For each call.
  void AddToken(grpc::ClientContext& context) const;

  // Whether a channel made of the other credentials serves for these.
  bool SameChannel(const ClientCredentials& other) const;

 private:
  bool encrypted_ = false;
  std::string server_name_;
  grpc::SslCredentialsOptions certificates_;
  std::string token_;
};

// Whether host:port can only be of this machine.
bool IsLoopback(const std::string& address);

}  // namespace tidetape::net

#endif  // TIDETAPE_NET_CLIENT_SECURITY_H_
