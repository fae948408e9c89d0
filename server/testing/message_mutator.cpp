#include "server/testing/message_mutator.h"

#include <cmath>
#include <limits>
#include <vector>

namespace tidetape::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kMostRepeats = 200;

}  // namespace

int64_t MessageMutator::Number() {
  constexpr int64_t kExtremes[] = {0,         1,         -1,        2,         63,        64,        INT32_MAX, INT32_MIN,
                                   INT64_MAX, INT64_MIN, 1LL << 31, 1LL << 53, 1LL << 62, 1LL << 40, -1000000};
  const size_t choice = Below(std::size(kExtremes) + 5);
  return choice < std::size(kExtremes) ? kExtremes[choice] : static_cast<int64_t>(random_() >> Below(64));
}

double MessageMutator::Real() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double extremes[] = {0, -0.0, 1, -1, 1e-320, 1e308, -1e308, kInfinity, -kInfinity, std::nan("")};
  return extremes[Below(std::size(extremes))];
}

std::string MessageMutator::Text() {
  static const auto& kTexts = *new std::vector<std::string>{
      "",         " ",    "a",         "job with spaces", std::string("nul\0inside", 10), "\n",
      "<script>", "%s%n", "../../etc", "\xff\xfe",        std::string(257, 'x'),          std::string(1 << 16, 'y')};
  return kTexts[Below(kTexts.size())];
}

void MessageMutator::SetField(Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(&message, &field, static_cast<int32_t>(Number()));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.SetInt64(&message, &field, Number());
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.SetUInt32(&message, &field, static_cast<uint32_t>(Number()));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.SetUInt64(&message, &field, static_cast<uint64_t>(Number()));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.SetDouble(&message, &field, Real());
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection.SetFloat(&message, &field, static_cast<float>(Real()));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(&message, &field, Below(2) == 0);
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.SetEnumValue(&message, &field, static_cast<int>(Number()));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.SetString(&message, &field, Text());
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (Below(3) == 0) return reflection.ClearField(&message, &field);
      return MutateField(*reflection.MutableMessage(&message, &field));
  }
}

void MessageMutator::ChangeList(Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  const int size = reflection.FieldSize(message, &field);
  if (size > 0 && Below(4) == 0) return reflection.RemoveLast(&message, &field);
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (size == 0 || Below(4) == 0) {
        Message* added = reflection.AddMessage(&message, &field);
        if (size > 0) added->CopyFrom(reflection.GetRepeatedMessage(message, &field, static_cast<int>(Below(size))));
        return;
      }
      return MutateField(*reflection.MutableRepeatedMessage(&message, &field, static_cast<int>(Below(size))));
    case FieldDescriptor::CPPTYPE_INT32:
      if (size > 0)
        return reflection.SetRepeatedInt32(&message, &field, static_cast<int>(Below(size)), static_cast<int32_t>(Number()));
      return reflection.AddInt32(&message, &field, static_cast<int32_t>(Number()));
    case FieldDescriptor::CPPTYPE_INT64:
      for (size_t i = Below(kMostRepeats); i-- > 0;) reflection.AddInt64(&message, &field, Number());
      return;
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.AddUInt64(&message, &field, static_cast<uint64_t>(Number()));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.AddDouble(&message, &field, Real());
    default:
      return;  // the contract has no other lists that agents send
  }
}

void MessageMutator::MutateField(Message& message) {
  const auto* descriptor = message.GetDescriptor();
  if (descriptor->field_count() == 0) return;
  // Mostly a field that is there, so that changes go deep.
  std::vector<const FieldDescriptor*> set;
  message.GetReflection()->ListFields(message, &set);
  const FieldDescriptor& field = !set.empty() && Below(4) != 0
                                     ? *set[Below(set.size())]
                                     : *descriptor->field(static_cast<int>(Below(descriptor->field_count())));
  if (field.is_repeated()) {
    ChangeList(message, field);
  } else {
    SetField(message, field);
  }
}

void MessageMutator::MutateBytes(std::string& bytes) {
  if (bytes.empty()) return;
  for (size_t changes = 1 + Below(4); changes-- > 0 && !bytes.empty();) {
    const size_t at = Below(bytes.size());
    switch (Below(5)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << Below(8)));
        break;
      case 1:
        bytes.insert(at, 1 + Below(8), static_cast<char>(random_()));
        break;
      case 2:
        bytes.erase(at, 1 + Below(8));
        break;
      case 3:
        bytes.insert(at, bytes.substr(Below(bytes.size()), 1 + Below(64)));
        break;
      default:
        bytes.resize(at);
    }
  }
}

}  // namespace tidetape::server
