#include "server/ctl/machine_file.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace tidetape::ctl {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

absl::Status Invalid(const std::string& field, const char* rule) {
  return absl::InvalidArgumentError(absl::StrCat("field \"", field, "\" ", rule));
}

absl::Status ReadNumber(const std::string& field, const Value& value, bool rate, double* number) {
  if (value.kind_case() != Value::kNumberValue) return Invalid(field, "must be a number");
  *number = value.number_value();
  if (!std::isfinite(*number) || *number < 0) return Invalid(field, "must be finite and not negative");
  if (rate && *number == 0) return Invalid(field, "is a rate, must be above 0");
  return absl::OkStatus();
}

absl::Status ReadFlag(const std::string& field, const Value& value, bool* flag) {
  if (value.kind_case() != Value::kBoolValue) return Invalid(field, "must be true or false");
  *flag = value.bool_value();
  return absl::OkStatus();
}

absl::Status ReadLink(const std::string& name, const Value& value, collectives::LinkModel* link) {
  if (value.kind_case() != Value::kStructValue) return Invalid(name, "must be an object");
  for (const auto& [key, member] : value.struct_value().fields()) {
    const std::string field = absl::StrCat(name, ".", key);
    absl::Status status;
    if (key == "bytes_per_second") {
      status = ReadNumber(field, member, true, &link->bytes_per_second);
    } else if (key == "latency_seconds") {
      status = ReadNumber(field, member, false, &link->latency_seconds);
    } else if (key == "put_seconds") {
      status = ReadNumber(field, member, false, &link->put_seconds);
    } else if (key == "sender_copies") {
      status = ReadFlag(field, member, &link->sender_copies);
    } else if (key == "multicast") {
      status = ReadFlag(field, member, &link->multicast);
    } else if (key == "takes_processor") {
      status = ReadFlag(field, member, &link->takes_processor);
    } else {
      status = Invalid(field, "is unknown");
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<collectives::Machine> ParseMachine(const std::string& json, const collectives::Machine& defaults) {
  Struct file;
  if (const auto status = google::protobuf::util::JsonStringToMessage(json, &file); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("not a JSON object: ", std::string(status.message())));
  }
  collectives::Machine machine = defaults;
  for (const auto& [key, value] : file.fields()) {
    absl::Status status;
    if (key == "local") {
      status = ReadLink(key, value, &machine.local);
    } else if (key == "network") {
      status = ReadLink(key, value, &machine.network);
    } else if (key == "copy_bytes_per_second") {
      status = ReadNumber(key, value, true, &machine.copy_bytes_per_second);
    } else if (key == "add_elements_per_second") {
      status = ReadNumber(key, value, true, &machine.add_elements_per_second);
    } else if (key == "step_seconds") {
      status = ReadNumber(key, value, false, &machine.step_seconds);
    } else if (key == "processors") {
      double processors = 0;
      status = ReadNumber(key, value, false, &processors);
      if (status.ok() && (processors != std::floor(processors) || processors > 1e6))
        status = Invalid(key, "must be a whole number");
      if (status.ok()) machine.processors = static_cast<int>(processors);
    } else {
      status = Invalid(key, "is unknown");
    }
    if (!status.ok()) return status;
  }
  return machine;
}

absl::StatusOr<collectives::Machine> ReadMachineFile(const std::string& path, const collectives::Machine& defaults) {
  std::ifstream file(path, std::ios::binary);
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  auto machine = ParseMachine(json, defaults);
  if (!machine.ok()) {
    return absl::Status(machine.status().code(), absl::StrCat(path, ": ", machine.status().message()));
  }
  return machine;
}

}  // namespace tidetape::ctl
