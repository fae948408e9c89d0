#include "server/store/sql_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/store/errors.h"

namespace tidetape::server {
namespace {

using Values = std::vector<SqlValue>;

SqlValue Text(const std::string& text) { return SqlValue::Text(text); }
SqlValue Integer(int64_t value) { return SqlValue::Integer(value); }
// SQL has no unsigned integers.
SqlValue Hash(uint64_t hash) { return SqlValue::Integer(static_cast<int64_t>(hash)); }
SqlValue Message(const google::protobuf::MessageLite& message) { return SqlValue::Bytes(message.SerializeAsString()); }
SqlValue Time(absl::Time time) { return SqlValue::Integer(absl::ToUnixMicros(time)); }

template <typename T>
SqlValue Optional(const std::optional<T>& message) {
  return message.has_value() ? Message(*message) : SqlValue::Null(SqlValue::Type::kBytes);
}

template <typename T>
absl::Status Parse(const SqlValue& value, const std::string& what, T& message) {
  if (message.ParseFromString(value.data)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("what is stored as ", what, " cannot be read; restore a backup"));
}

// The fields of the job's row; NOT_FOUND where there is none.
absl::StatusOr<Values> JobRow(SqlDatabase& database, const std::string& job) {
  auto result = database.Execute("SELECT incarnation, generation FROM jobs WHERE name = $1", {Text(job)});
  if (!result.ok()) return result.status();
  if (result->rows.empty()) return NoJobError(job);
  return std::move(result->rows[0]);
}

absl::Status Execute(SqlDatabase& database, const std::string& sql, const Values& values) {
  return database.Execute(sql, values).status();
}

// Updates the job's row; NOT_FOUND where there is none. $1 is the job's name.
absl::Status ChangeJob(SqlDatabase& database, const std::string& job, const std::string& sql, Values values) {
  values.insert(values.begin(), Text(job));
  const auto result = database.Execute(sql, values);
  if (!result.ok()) return result.status();
  return result->changed_rows == 0 ? NoJobError(job) : absl::OkStatus();
}

// Runs the statements until one fails.
absl::Status ExecuteAll(SqlDatabase& database, std::initializer_list<const char*> statements, const Values& values) {
  for (const char* statement : statements) {
    if (absl::Status status = Execute(database, statement, values); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status InsertIncarnation(SqlDatabase& database, const std::string& job, const IncarnationRecord& incarnation) {
  const auto row = JobRow(database, job);
  if (!row.ok()) return row.status();
  if ((*row)[0].data == incarnation.id && !incarnation.id.empty()) return absl::OkStatus();  // repeated
  const auto known = database.Execute("SELECT id FROM incarnations WHERE job = $1 AND id = $2", {Text(job), Text(incarnation.id)});
  if (!known.ok()) return known.status();
  if (!known->rows.empty()) return KnownIncarnationError(job, incarnation.id);
  absl::Status status =
      Execute(database,
              "INSERT INTO incarnations (job, position, id, birth, world_size, first_seen_unix_micros, device, torch_version) "
              "SELECT $1, COUNT(*), $2, $3, $4, $5, $6, $7 FROM incarnations WHERE job = $1",
              {Text(job), Text(incarnation.id), Integer(incarnation.order), Integer(incarnation.world_size),
               Time(incarnation.first_seen), SqlValue::Bytes(incarnation.device), SqlValue::Bytes(incarnation.torch_version)});
  if (!status.ok()) return status;
  status = Execute(database, "UPDATE jobs SET incarnation = $2 WHERE name = $1", {Text(job), Text(incarnation.id)});
  if (!status.ok()) return status;
  status = Execute(database, "DELETE FROM ranks WHERE job = $1", {Text(job)});
  if (!status.ok()) return status;
  return Execute(database, "DELETE FROM costs WHERE job = $1 AND rank >= $2", {Text(job), Integer(incarnation.world_size)});
}

absl::Status WriteRank(SqlDatabase& database, const std::string& job, const RankUpdate& update) {
  const auto row = JobRow(database, job);
  if (!row.ok()) return row.status();
  if ((*row)[0].data != update.incarnation) return StaleIncarnationError(job, update.incarnation, (*row)[0].data);
  const auto standing = [&](int64_t PlanStanding::*generation) {
    return update.standing.has_value() ? Integer((*update.standing).*generation) : SqlValue::Null(SqlValue::Type::kInteger);
  };
  absl::Status status =
      Execute(database,
              "INSERT INTO ranks (job, rank, hello, report, profile, reports, held_generation, active_generation, plan_error, "
              "heard_unix_micros) VALUES ($1, $2, $3, $4, $5, $6, COALESCE($7, 0), COALESCE($8, 0), COALESCE($9, $10), $11) "
              "ON CONFLICT (job, rank) DO UPDATE SET hello = COALESCE($3, ranks.hello), report = COALESCE($4, ranks.report), "
              "profile = COALESCE($5, ranks.profile), reports = ranks.reports + $6, "
              "held_generation = COALESCE($7, ranks.held_generation), active_generation = COALESCE($8, ranks.active_generation), "
              "plan_error = COALESCE($9, ranks.plan_error), heard_unix_micros = $11",
              {Text(job), Integer(update.rank), Optional(update.hello), Optional(update.report), Optional(update.profile),
               Integer(update.report.has_value() ? 1 : 0), standing(&PlanStanding::held_generation),
               standing(&PlanStanding::active_generation),
               update.standing.has_value() ? SqlValue::Bytes(update.standing->error) : SqlValue::Null(SqlValue::Type::kBytes),
               SqlValue::Bytes(""), Time(update.heard)});
  for (const v1::TapeCosts& costs : update.costs) {
    if (!status.ok()) return status;
    status = Execute(database,
                     "INSERT INTO costs (job, rank, structure_hash, costs) VALUES ($1, $2, $3, $4) "
                     "ON CONFLICT (job, rank, structure_hash) DO UPDATE SET costs = $4",
                     {Text(job), Integer(update.rank), Hash(costs.structure_hash()), Message(costs)});
  }
  return status;
}

absl::Status InsertPlan(SqlDatabase& database, const v1::Plan& plan) {
  const auto row = JobRow(database, plan.job());
  if (!row.ok()) return row.status();
  const int64_t committed = (*row)[1].integer;
  const Values key = {Text(plan.job()), Integer(plan.generation())};
  if (plan.generation() <= committed) {
    const auto known = database.Execute("SELECT plan FROM plans WHERE job = $1 AND generation = $2", key);
    if (!known.ok()) return known.status();
    const bool repeated =
        plan.generation() == committed && !known->rows.empty() && known->rows[0][0].data == plan.SerializeAsString();
    return repeated ? absl::OkStatus() : OldGenerationError(plan.job(), plan.generation(), committed);
  }
  absl::Status status =
      Execute(database, "INSERT INTO plans (job, generation, plan) VALUES ($1, $2, $3)", {key[0], key[1], Message(plan)});
  if (!status.ok()) return status;
  status = Execute(database, "UPDATE jobs SET generation = $2 WHERE name = $1", key);
  if (!status.ok()) return status;
  return Execute(database,
                 "DELETE FROM plans WHERE job = $1 AND generation < (SELECT MIN(generation) FROM "
                 "(SELECT generation FROM plans WHERE job = $1 ORDER BY generation DESC LIMIT $2) AS newest)",
                 {Text(plan.job()), Integer(Store::kKeptPlans)});
}

}  // namespace

SqlStore::SqlStore(std::unique_ptr<SqlDatabase> writer, std::unique_ptr<SqlDatabase> reader, CommitQueue::Options options)
    : reader_(std::move(reader)), writer_(std::move(writer)), queue_(writer_.get(), std::move(options)) {}

absl::StatusOr<SqlResult> SqlStore::Read(const std::string& sql, const Values& parameters) {
  absl::MutexLock lock(&read_mutex_);
  return reader_->Execute(sql, parameters);
}

absl::StatusOr<SqlResult> SqlStore::ReadOfJob(const std::string& job, const std::string& sql, Values parameters) {
  parameters.insert(parameters.begin(), Text(job));
  absl::MutexLock lock(&read_mutex_);
  auto result = reader_->Execute(sql, parameters);
  if (!result.ok() || !result->rows.empty()) return result;
  const auto row = JobRow(*reader_, job);
  if (!row.ok()) return row.status();
  return result;
}

absl::Status SqlStore::UpdateJob(const std::string& job, const std::string& sql, Values values) {
  return queue_.Run([&](SqlDatabase& database) { return ChangeJob(database, job, sql, values); });
}

absl::Status SqlStore::Check() {
  return queue_.Run([](SqlDatabase& database) {
    return Execute(database,
                   "INSERT INTO checks (id, writes) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET writes = checks.writes + 1", {});
  });
}

absl::StatusOr<std::vector<std::string>> SqlStore::ListJobs() {
  auto result = Read("SELECT name FROM jobs", {});
  if (!result.ok()) return result.status();
  std::vector<std::string> names;
  for (auto& row : result->rows) names.push_back(std::move(row[0].data));
  // Here, because the order of texts in a database depends on its locale.
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status SqlStore::CreateJob(const std::string& job) {
  if (job.empty()) return NamelessJobError();
  return queue_.Run([&](SqlDatabase& database) {
    return Execute(database, "INSERT INTO jobs (name) VALUES ($1) ON CONFLICT (name) DO NOTHING", {Text(job)});
  });
}

absl::Status SqlStore::DeleteJob(const std::string& job) {
  return queue_.Run([&](SqlDatabase& database) {
    return ExecuteAll(
        database,
        {"DELETE FROM ranks WHERE job = $1", "DELETE FROM costs WHERE job = $1", "DELETE FROM plans WHERE job = $1",
         "DELETE FROM tapes WHERE job = $1", "DELETE FROM incarnations WHERE job = $1", "DELETE FROM jobs WHERE name = $1"},
        {Text(job)});
  });
}

absl::StatusOr<JobRecord> SqlStore::GetJob(const std::string& job) {
  const auto result = ReadOfJob(job, "SELECT revision, ended_unix_micros, end_reason, end_refuses FROM jobs WHERE name = $1", {});
  if (!result.ok()) return result.status();
  const Values& row = result->rows[0];
  JobRecord record;
  record.revision = row[0].integer;
  if (!row[1].null) record.end = {absl::FromUnixMicros(row[1].integer), row[2].data, row[3].integer != 0};
  return record;
}

absl::Status SqlStore::PutEnd(const std::string& job, const std::optional<JobEnd>& end) {
  const JobEnd values = end.value_or(JobEnd());
  return UpdateJob(job, "UPDATE jobs SET ended_unix_micros = $2, end_reason = $3, end_refuses = $4 WHERE name = $1",
                   {end.has_value() ? Time(values.at) : SqlValue::Null(SqlValue::Type::kInteger), SqlValue::Bytes(values.reason),
                    Integer(values.refuses ? 1 : 0)});
}

absl::Status SqlStore::AddIncarnation(const std::string& job, const IncarnationRecord& incarnation) {
  return queue_.Run([&](SqlDatabase& database) { return InsertIncarnation(database, job, incarnation); });
}

absl::StatusOr<std::vector<IncarnationRecord>> SqlStore::ListIncarnations(const std::string& job) {
  const auto result = ReadOfJob(job,
                                "SELECT id, birth, world_size, first_seen_unix_micros, device, torch_version FROM incarnations "
                                "WHERE job = $1 ORDER BY position",
                                {});
  if (!result.ok()) return result.status();
  std::vector<IncarnationRecord> incarnations;
  for (const auto& row : result->rows) {
    incarnations.push_back({row[0].data, row[1].integer, static_cast<int32_t>(row[2].integer), absl::FromUnixMicros(row[3].integer),
                            row[4].data, row[5].data});
  }
  return incarnations;
}

absl::Status SqlStore::PutTape(const std::string& job, const v1::BlockTape& tape, KnownCosts costs) {
  return queue_.Run([&](SqlDatabase& database) {
    absl::Status status = ChangeJob(database, job, "UPDATE jobs SET revision = revision + 1 WHERE name = $1", {});
    if (!status.ok()) return status;
    status = Execute(database,
                     "INSERT INTO tapes (job, structure_hash, tape) VALUES ($1, $2, $3) "
                     "ON CONFLICT (job, structure_hash) DO UPDATE SET tape = $3",
                     {Text(job), Hash(tape.structure_hash()), Message(tape)});
    if (!status.ok() || costs == KnownCosts::kKeep) return status;
    return Execute(database, "DELETE FROM costs WHERE job = $1 AND structure_hash = $2", {Text(job), Hash(tape.structure_hash())});
  });
}

absl::StatusOr<v1::BlockTape> SqlStore::GetTape(const std::string& job, uint64_t structure_hash) {
  const auto result = ReadOfJob(job, "SELECT tape FROM tapes WHERE job = $1 AND structure_hash = $2", {Hash(structure_hash)});
  if (!result.ok()) return result.status();
  if (result->rows.empty()) return NoTapeError(job, structure_hash);
  v1::BlockTape tape;
  absl::Status status = Parse(result->rows[0][0], absl::StrCat("a tape of job '", job, "'"), tape);
  if (!status.ok()) return status;
  return tape;
}

absl::StatusOr<std::vector<uint64_t>> SqlStore::ListTapes(const std::string& job) {
  const auto result = ReadOfJob(job, "SELECT structure_hash FROM tapes WHERE job = $1", {});
  if (!result.ok()) return result.status();
  std::vector<uint64_t> hashes;
  for (const auto& row : result->rows) hashes.push_back(static_cast<uint64_t>(row[0].integer));
  std::sort(hashes.begin(), hashes.end());
  return hashes;
}

void SqlStore::UpdateRank(const std::string& job, RankUpdate update, Done done) {
  queue_.Post([job, update = std::move(update)](SqlDatabase& database) { return WriteRank(database, job, update); },
              std::move(done));
}

absl::StatusOr<std::vector<RankRecord>> SqlStore::ListRanks(const std::string& job) {
  const auto result = ReadOfJob(job,
                                "SELECT rank, hello, report, profile, reports, held_generation, active_generation, plan_error, "
                                "heard_unix_micros FROM ranks WHERE job = $1 ORDER BY rank",
                                {});
  if (!result.ok()) return result.status();
  std::vector<RankRecord> ranks;
  for (const auto& row : result->rows) {
    RankRecord& rank = ranks.emplace_back();
    rank.rank = static_cast<int32_t>(row[0].integer);
    const std::string what = absl::StrCat("rank ", rank.rank, " of job '", job, "'");
    absl::Status status = Parse(row[1], what, rank.hello);
    if (status.ok() && !row[2].null) status = Parse(row[2], what, rank.report.emplace());
    if (status.ok() && !row[3].null) status = Parse(row[3], what, rank.profile.emplace());
    if (!status.ok()) return status;
    rank.reports = row[4].integer;
    rank.standing = {row[5].integer, row[6].integer, row[7].data};
    rank.heard = absl::FromUnixMicros(row[8].integer);
  }
  return ranks;
}

absl::StatusOr<std::vector<CostRecord>> SqlStore::ListCosts(const std::string& job) {
  const auto result = ReadOfJob(job, "SELECT rank, costs FROM costs WHERE job = $1", {});
  if (!result.ok()) return result.status();
  std::vector<CostRecord> records;
  for (const auto& row : result->rows) {
    CostRecord& record = records.emplace_back();
    record.rank = static_cast<int32_t>(row[0].integer);
    absl::Status status = Parse(row[1], absl::StrCat("costs of rank ", record.rank, " of job '", job, "'"), record.costs);
    if (!status.ok()) return status;
  }
  // Here, because SQL's integers are signed.
  std::sort(records.begin(), records.end(), [](const CostRecord& a, const CostRecord& b) {
    return std::pair(a.rank, a.costs.structure_hash()) < std::pair(b.rank, b.costs.structure_hash());
  });
  return records;
}

absl::Status SqlStore::CommitPlan(const v1::Plan& plan) {
  return queue_.Run([&](SqlDatabase& database) { return InsertPlan(database, plan); });
}

absl::StatusOr<std::vector<v1::Plan>> SqlStore::ListPlans(const std::string& job, int limit) {
  const auto result =
      ReadOfJob(job, "SELECT plan FROM plans WHERE job = $1 ORDER BY generation DESC LIMIT $2", {Integer(std::max(limit, 0))});
  if (!result.ok()) return result.status();
  std::vector<v1::Plan> plans;
  for (const auto& row : result->rows) {
    absl::Status status = Parse(row[0], absl::StrCat("a plan of job '", job, "'"), plans.emplace_back());
    if (!status.ok()) return status;
  }
  return plans;
}

absl::Status SqlStore::PutConstraints(const std::string& job, const v1::Constraints& constraints) {
  return UpdateJob(job, "UPDATE jobs SET constraints = $2, revision = revision + 1 WHERE name = $1", {Message(constraints)});
}

absl::StatusOr<v1::Constraints> SqlStore::GetConstraints(const std::string& job) {
  const auto result = ReadOfJob(job, "SELECT constraints FROM jobs WHERE name = $1", {});
  if (!result.ok()) return result.status();
  v1::Constraints constraints;
  if (const SqlValue& stored = result->rows[0][0]; !stored.null) {
    if (absl::Status status = Parse(stored, absl::StrCat("constraints of job '", job, "'"), constraints); !status.ok())
      return status;
  }
  return constraints;
}

absl::Status SqlStore::PutKnownRun(const KnownRunKey& key, const v1::KnownRun& run, absl::Time used, int64_t keep_bytes) {
  if (absl::Status status = CheckRunSize(run, keep_bytes); !status.ok()) return status;
  return queue_.Run([&](SqlDatabase& database) {
    absl::Status status = Execute(
        database,
        "INSERT INTO known_runs (structure, shapes, run, bytes, used_unix_micros) VALUES ($1, $2, $3, $4, $5) "
        "ON CONFLICT (structure, shapes) DO UPDATE SET run = $3, bytes = $4, used_unix_micros = $5",
        {Hash(key.structure), Hash(key.shapes), Message(run), Integer(static_cast<int64_t>(run.ByteSizeLong())), Time(used)});
    if (!status.ok()) return status;
    return Execute(database,
                   "DELETE FROM known_runs WHERE (structure, shapes) IN (SELECT structure, shapes FROM (SELECT structure, shapes, "
                   "SUM(bytes) OVER (ORDER BY used_unix_micros DESC, structure, shapes) AS total FROM known_runs) AS summed "
                   "WHERE total > $1)",
                   {Integer(keep_bytes)});
  });
}

absl::StatusOr<v1::KnownRun> SqlStore::GetKnownRun(const KnownRunKey& key) {
  const auto result =
      Read("SELECT run FROM known_runs WHERE structure = $1 AND shapes = $2", {Hash(key.structure), Hash(key.shapes)});
  if (!result.ok()) return result.status();
  if (result->rows.empty()) return NoRunError();
  v1::KnownRun run;
  if (absl::Status status = Parse(result->rows[0][0], "a known run", run); !status.ok()) return status;
  return run;
}

absl::StatusOr<std::vector<v1::KnownRun>> SqlStore::ListKnownRuns(uint64_t structure, int limit) {
  const auto result = Read("SELECT run FROM known_runs WHERE structure = $1 ORDER BY used_unix_micros DESC LIMIT $2",
                           {Hash(structure), Integer(std::max(limit, 0))});
  if (!result.ok()) return result.status();
  std::vector<v1::KnownRun> runs;
  for (const auto& row : result->rows) {
    if (absl::Status status = Parse(row[0], "a known run", runs.emplace_back()); !status.ok()) return status;
  }
  return runs;
}

absl::Status SqlStore::DropKnownRuns(absl::Time before) {
  return queue_.Run([&](SqlDatabase& database) {
    return Execute(database, "DELETE FROM known_runs WHERE used_unix_micros < $1", {Time(before)});
  });
}

}  // namespace tidetape::server
