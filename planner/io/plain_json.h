// Fills a protobuf message from proto3 JSON as programs write it, many times as fast as protobuf's own reader: a problem of a large
// model has tens of megabytes.
#ifndef TIDETAPE_PLANNER_IO_PLAIN_JSON_H_
#define TIDETAPE_PLANNER_IO_PLAIN_JSON_H_

#include <google/protobuf/message.h>

#include <string_view>

namespace tidetape::planner {

// Takes objects that name each field once, whole numbers (64-bit ones also as strings), numbers, true and false, strings and enums
// by name. Returns false for anything else, be it wrong or merely unusual, with the message in no certain state: protobuf's own
// reader is then to be asked, which takes more and says what is wrong. What is taken here, it takes in the same meaning.
// Thread-safe.
bool ReadPlainJson(std::string_view json, google::protobuf::Message& message);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_IO_PLAIN_JSON_H_
