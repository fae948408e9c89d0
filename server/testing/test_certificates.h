// For tests: an authority with certificates, made by the openssl program, and tokens with their file.
#ifndef TIDETAPE_SERVER_TESTING_TEST_CERTIFICATES_H_
#define TIDETAPE_SERVER_TESTING_TEST_CERTIFICATES_H_

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "net/client_security.h"

namespace tidetape::server {

// Files in a folder of the test: ca.pem; NAME.pem and NAME.key of each certificate; NAME.token.
class TestCertificates {
 public:
  explicit TestCertificates(const std::string& name) : folder_(testing::TempDir() + "/" + name) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    Run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test-authority "
        "-keyout ca.key -out ca.pem");
    std::ofstream(folder_ + "/extensions") << "subjectAltName=IP:127.0.0.1,DNS:localhost\n";
    std::ofstream(folder_ + "/ca.conf") << "[ca]\ndefault_ca=c\n[c]\ndatabase=index\nserial=serial\nnew_certs_dir=.\n"
                                           "default_md=sha256\npolicy=p\nunique_subject=no\n[p]\ncommonName=supplied\n";
    std::ofstream(folder_ + "/index");
    std::ofstream(folder_ + "/serial") << "01\n";
  }

  // A certificate for 127.0.0.1, valid now, or until yesterday.
  void Make(const std::string& name, bool expired = false) {
    Run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=" + name + " -keyout " + name +
        ".key -out " + name + ".csr");
    Run("openssl ca -batch -config ca.conf -cert ca.pem -keyfile ca.key -in " + name + ".csr -out " + name +
        ".pem -notext -extfile extensions -startdate 20200101000000Z -enddate " +
        (expired ? "20200102000000Z" : "20991231235959Z"));
  }

  // A token of this name; returns its line for a token file.
  std::string MakeToken(const std::string& name, const std::string& role, const std::string& jobs = "") {
    std::ofstream(File(name + ".token")) << "token-of-" << name << "\n";
    return name + " " + role + " " + Run("printf token-of-" + name + " | sha256sum | cut -d' ' -f1") + " " + jobs + "\n";
  }

  std::string File(const std::string& name) const { return folder_ + "/" + name; }

  // What a client needs that has this certificate and this token; empty: none.
  net::ClientSecurity Security(const std::string& certificate, const std::string& token) const {
    net::ClientSecurity security;
    security.ca_file = File("ca.pem");
    if (!certificate.empty()) {
      security.certificate_file = File(certificate + ".pem");
      security.key_file = File(certificate + ".key");
    }
    if (!token.empty()) security.token_file = File(token + ".token");
    return security;
  }

 private:
  // Standard output, without the end of its last line.
  std::string Run(const std::string& command) {
    FILE* pipe = popen(("cd " + folder_ + " && " + command + " 2>>log").c_str(), "r");
    std::string output;
    for (int c; (c = std::fgetc(pipe)) != EOF;) output += static_cast<char>(c);
    EXPECT_EQ(pclose(pipe), 0) << command << "; see " << folder_ << "/log";
    while (!output.empty() && output.back() == '\n') output.pop_back();
    return output;
  }

  const std::string folder_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_TESTING_TEST_CERTIFICATES_H_
