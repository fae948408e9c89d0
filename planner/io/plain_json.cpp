#include "planner/io/plain_json.h"

#include <google/protobuf/descriptor.h>
#include <rapidjson/document.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tidetape::planner {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using rapidjson::Value;

// From here on, a double does not hold every whole number.
constexpr double kWholeNumbers = 9007199254740992.0;

std::string_view Text(const Value& value) { return {value.GetString(), value.GetStringLength()}; }

template <typename Integer>
bool ReadInteger(const Value& json, Integer& integer) {
  if (json.IsString()) {
    const std::string_view text = Text(json);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), integer);
    return error == std::errc() && end == text.data() + text.size() && !text.empty();
  }
  if (json.IsInt64()) {
    integer = static_cast<Integer>(json.GetInt64());
    return std::in_range<Integer>(json.GetInt64());
  }
  if (!json.IsUint64()) return false;
  integer = static_cast<Integer>(json.GetUint64());
  return std::in_range<Integer>(json.GetUint64());
}

bool ReadDouble(const Value& json, double& number) {
  if (!json.IsNumber()) return false;
  number = json.GetDouble();
  return json.IsDouble() || std::abs(number) < kWholeNumbers;
}

class Reader {
 public:
  bool Fill(const Value& json, Message& message) {
    if (!json.IsObject()) return false;
    std::vector<bool> seen(static_cast<size_t>(message.GetDescriptor()->field_count()), false);
    for (const auto& member : json.GetObject()) {
      const FieldDescriptor* field = Find(message.GetDescriptor(), Text(member.name));
      if (field == nullptr || field->is_map() || seen[field->index()]) return false;
      seen[field->index()] = true;
      if (!field->is_repeated()) {
        if (!Read(member.value, message, field)) return false;
        continue;
      }
      if (!member.value.IsArray()) return false;
      for (const Value& element : member.value.GetArray()) {
        if (!Read(element, message, field)) return false;
      }
    }
    return true;
  }

 private:
  const FieldDescriptor* Find(const Descriptor* type, std::string_view name) {
    std::unordered_map<std::string_view, const FieldDescriptor*>& fields = fields_[type];
    if (fields.empty()) {
      for (int f = 0; f < type->field_count(); ++f) {
        fields[type->field(f)->name()] = type->field(f);
        fields[type->field(f)->json_name()] = type->field(f);
      }
    }
    const auto found = fields.find(name);
    return found == fields.end() ? nullptr : found->second;
  }

  // One value of the field: sets it, or adds it where the field is repeated.
  bool Read(const Value& json, Message& message, const FieldDescriptor* field) {
    const Reflection& reflection = *message.GetReflection();
    const auto store = [&](auto set, auto add, const auto& value) {
      field->is_repeated() ? (reflection.*add)(&message, field, value) : (reflection.*set)(&message, field, value);
      return true;
    };
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: {
        int32_t value = 0;
        return ReadInteger(json, value) && store(&Reflection::SetInt32, &Reflection::AddInt32, value);
      }
      case FieldDescriptor::CPPTYPE_INT64: {
        int64_t value = 0;
        return ReadInteger(json, value) && store(&Reflection::SetInt64, &Reflection::AddInt64, value);
      }
      case FieldDescriptor::CPPTYPE_UINT64: {
        uint64_t value = 0;
        return ReadInteger(json, value) && store(&Reflection::SetUInt64, &Reflection::AddUInt64, value);
      }
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        double value = 0;
        return ReadDouble(json, value) && store(&Reflection::SetDouble, &Reflection::AddDouble, value);
      }
      case FieldDescriptor::CPPTYPE_BOOL:
        return json.IsBool() && store(&Reflection::SetBool, &Reflection::AddBool, json.GetBool());
      case FieldDescriptor::CPPTYPE_STRING:
        if (!json.IsString() || field->type() != FieldDescriptor::TYPE_STRING) return false;
        field->is_repeated() ? reflection.AddString(&message, field, std::string(Text(json)))
                             : reflection.SetString(&message, field, std::string(Text(json)));
        return true;
      case FieldDescriptor::CPPTYPE_ENUM: {
        if (!json.IsString()) return false;
        const auto* value = field->enum_type()->FindValueByName(std::string(Text(json)));
        return value != nullptr && store(&Reflection::SetEnum, &Reflection::AddEnum, value);
      }
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(json,
                    field->is_repeated() ? *reflection.AddMessage(&message, field) : *reflection.MutableMessage(&message, field));
      default:
        return false;
    }
  }

  std::unordered_map<const Descriptor*, std::unordered_map<std::string_view, const FieldDescriptor*>> fields_;
};

// A zero with an exponent or many digits, as 0e-96: RapidJSON reads some of them as other numbers. Within a text it counts, too: it
// only costs time.
bool HasLongZero(std::string_view json) {
  constexpr size_t kShort = 8;
  for (size_t begin = json.find('0'); begin != std::string_view::npos;) {
    const size_t end = std::min(json.find_first_not_of("0.", begin), json.size());
    const char before = begin > 0 ? json[begin - 1] : ' ', after = end < json.size() ? json[end] : ' ';
    const bool exponent = after == 'e' || after == 'E';
    const bool other_digit = (before >= '1' && before <= '9') || before == '.' || (after >= '1' && after <= '9');
    if (!other_digit && (exponent || end - begin > kShort)) return true;
    begin = json.find('0', end);
  }
  return false;
}

}  // namespace

bool ReadPlainJson(std::string_view json, Message& message) {
  if (json.find('\0') != std::string_view::npos) return false;  // the parser would end there
  if (HasLongZero(json)) return false;
  std::string text(json);
  // Of a character that the end cuts off, the parser reads up to three more bytes.
  text.append(3, '\0');
  rapidjson::Document document;
  constexpr unsigned kFlags = rapidjson::kParseInsituFlag | rapidjson::kParseIterativeFlag | rapidjson::kParseFullPrecisionFlag |
                              rapidjson::kParseValidateEncodingFlag;
  document.ParseInsitu<kFlags>(text.data());
  return !document.HasParseError() && Reader().Fill(document, message);
}

}  // namespace tidetape::planner
