// Messages as a broken or hostile agent might send them: valid ones, changed at random in their fields or in their bytes.
#ifndef TIDETAPE_SERVER_TESTING_MESSAGE_MUTATOR_H_
#define TIDETAPE_SERVER_TESTING_MESSAGE_MUTATOR_H_

#include <google/protobuf/message.h>

#include <cstdint>
#include <random>
#include <string>

namespace tidetape::server {

// The same seed makes the same changes. Not thread-safe.
class MessageMutator {
 public:
  explicit MessageMutator(uint64_t seed) : random_(seed) {}

  // Changes one field somewhere in the message: to an extreme or a random value, away, or twice.
  void MutateField(google::protobuf::Message& message);

  // Changes bytes: flips, inserts, deletes, repeats and cuts off.
  void MutateBytes(std::string& bytes);

  // From 0 to `count` - 1.
  size_t Below(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random_); }

 private:
  int64_t Number();
  double Real();
  std::string Text();
  void SetField(google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field);
  void ChangeList(google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field);

  std::mt19937_64 random_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_TESTING_MESSAGE_MUTATOR_H_
