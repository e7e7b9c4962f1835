#include "bench/training/train/options.h"

#include <CLI/CLI.hpp>

#include <cmath>
#include <sstream>
#include <utility>

namespace gyre::training {
namespace {

constexpr std::uint64_t max_steps = std::uint64_t{1} << 40;
// CLI11 reads a negative number as one of those above.
constexpr std::uint64_t max_seed = ~std::uint64_t{0} >> 1;

template <typename Value>
CLI::Option* whole(CLI::App& app, const std::string& name, Value& value, std::uint64_t least,
                   std::uint64_t most, const std::string& meaning) {
  return app.add_option(name, value, meaning)
      ->check(CLI::Range(static_cast<Value>(least), static_cast<Value>(most)).description(""))
      ->type_name("N");
}

CLI::Option* one_of(CLI::App& app, const std::string& name, std::string& value,
                    const std::vector<std::string>& names, const std::string& meaning) {
  return app.add_option(name, value, meaning)->check(CLI::IsMember(names).description(""));
}

void add_model_options(CLI::App& app, Options& o) {
  one_of(app, "--model", o.model, {"digits", "gpt"},
         "digits (default): a perceptron that reads digits; gpt: a transformer that continues text")
      ->type_name("digits|gpt");
  app.add_option("--data", o.data,
                 "what to learn, gzip'ed or not. digits: CSV, 64 points of 0 to 16 and the digit "
                 "(default: that of Debian's python3-sklearn, else made up); gpt: any text "
                 "(default: Debian's common licences)")
      ->type_name("FILE");
  whole(app, "--layers", o.layers, 1, 128, "hidden layers (default: digits 2, gpt 4)");
  whole(app, "--width", o.width, 1, 1 << 14, "numbers of a layer")->capture_default_str();
  whole(app, "--heads", o.heads, 1, 256, "gpt: heads of attention, a divisor of the width")
      ->capture_default_str();
  whole(app, "--context", o.length, 1, 1 << 14, "gpt: characters of an example")
      ->capture_default_str();
}

void add_rank_options(CLI::App& app, Options& o) {
  one_of(app, "--parallel", o.parallel,
         {"ddp", "zero1", "zero2", "zero3", "hybrid", "stale", "server", "local"},
         "ddp (default): the mean of gradients; zero1, 2, 3: shares of the optimizer's state, "
         "gradients too, parameters too; hybrid: zero3 in groups, each with a model; stale: ddp "
         "that does not wait for a slow rank in each step; server: rank 0 updates for all; local: "
         "each rank by itself, and the mean of parameters now and then")
      ->type_name("WAY");
  whole(app, "--factor", o.factor, 1, 1 << 20,
        "zero1, 2, 3, hybrid: ranks that share one model, a divisor of their number (default: all; "
        "hybrid 2)");
  whole(app, "--staleness", o.staleness, 0, 1 << 20,
        "stale: rounds of the others' gradients that a rank may miss; lines then show rank 0 alone")
      ->capture_default_str();
  whole(app, "--local-steps", o.local_steps, 1, max_steps, "local: steps between two means")
      ->capture_default_str();
  whole(app, "--threads", o.threads, 1, 1024, "so many ranks as threads of this process");
  app.add_option("--bucket-mb", o.bucket_mb, "ddp, server: MiB of gradients that leave together")
      ->check(CLI::Range(0.001, 4096.0).description(""))
      ->type_name("MIB")
      ->capture_default_str();
}

void add_training_options(CLI::App& app, Options& o) {
  whole(app, "--batch", o.batch, 1, 1 << 20, "examples of a rank (default: digits 16, gpt 8)");
  whole(app, "--steps", o.steps, 1, max_steps,
        "in all, those before --resume too (default: digits 3000, gpt 200)");
  app.add_option("--until-loss", o.until_loss, "end when the mean of ten steps is below it")
      ->type_name("LOSS");
  one_of(app, "--optimizer", o.optimizer, {"adamw", "sgd"}, "adamw (default) or sgd")
      ->type_name("adamw|sgd");
  app.add_option("--rate", o.rate, "of learning (default: adamw 0.001, sgd 0.1)")
      ->type_name("RATE");
  app.add_option("--decay", o.decay, "of weights")
      ->check(CLI::Range(0.0, 1.0).description(""))
      ->type_name("RATE")
      ->capture_default_str();
  app.add_option("--momentum", o.momentum, "of sgd")
      ->check(CLI::Range(0.0, 1.0).description(""))
      ->type_name("SHARE")
      ->capture_default_str();
  whole(app, "--warmup", o.warmup, 0, max_steps, "steps in which the rate grows from 0");
  whole(app, "--seed", o.seed, 0, max_seed, "of first values and the order of examples")
      ->capture_default_str();
}

void add_file_options(CLI::App& app, Options& o) {
  whole(app, "--every", o.every, 1, 1 << 20,
        "steps between two lines; then ranks also sum up their losses, for --until-loss")
      ->capture_default_str();
  app.add_option("--json", o.json, "losses, seconds, accuracy, for programs")->type_name("FILE");
  app.add_option("--checkpoint", o.checkpoint,
                 "where all ranks write the model to at the end: a file that all of them see")
      ->type_name("FILE");
  whole(app, "--checkpoint-every", o.checkpoint_every, 1, max_steps, "and each so many steps");
  app.add_option("--resume", o.resume,
                 "a checkpoint to go on from, of any number of ranks and any way but stale, local")
      ->type_name("FILE");
}

constexpr const char* footer = R"(
n ranks with --batch B learn as one rank with --batch nB does, to rounding, in every way but stale
(above --staleness 0) and local.

  train                                                 one rank
  gyre run -n 2 train --model gpt --parallel zero3      also torchrun --no-python, mpirun, srun
  train --threads 4 --parallel server                   ranks as threads
)";

std::string objection(const Options& o) {
  if (!(o.rate > 0 && o.rate < 1e6))
    return "--rate has to be above 0 and below 1000000, and is " + std::to_string(o.rate);
  if (std::isnan(o.until_loss)) return "--until-loss is not a number";
  if (o.model == "gpt" && o.width % o.heads != 0)
    return "--heads " + std::to_string(o.heads) + " does not divide --width " +
           std::to_string(o.width);
  const bool shares_out = o.parallel.starts_with("zero") || o.parallel == "hybrid";
  if (o.factor > 0 && !shares_out)
    return "--factor is for zero1, zero2, zero3 and hybrid, not for " + o.parallel;
  const bool has_files = !o.checkpoint.empty() || !o.resume.empty();
  if (o.parallel == "stale" && has_files)
    return "stale: --checkpoint and --resume are not for it, as its optimizer counts rounds, not "
           "steps";
  if (o.parallel == "stale" && o.has_until_loss)
    return "stale: --until-loss is not for it, as its ranks are not at the same step";
  if (o.parallel == "local" && has_files)
    return "local: --checkpoint and --resume are not for it, as its ranks' optimizers differ";
  if (o.checkpoint_every > 0 && o.checkpoint.empty())
    return "--checkpoint-every needs --checkpoint";
  return "";
}

void set_defaults(Options& o, bool has_rate) {
  const bool is_gpt = o.model == "gpt";
  const auto otherwise = [](auto& value, auto chosen) {
    if (value == 0) value = static_cast<std::remove_reference_t<decltype(value)>>(chosen);
  };
  otherwise(o.layers, is_gpt ? 4 : 2);
  otherwise(o.batch, is_gpt ? 8 : 16);
  otherwise(o.steps, is_gpt ? 200 : 3000);
  if (o.parallel == "hybrid") otherwise(o.factor, 2);
  if (!has_rate) o.rate = o.optimizer == "sgd" ? 0.1 : 0.001;
}

}  // namespace

WayOptions Options::way() const {
  static constexpr std::pair<const char*, Parallelism> names[] = {
      {"ddp", Parallelism::ddp},       {"zero1", Parallelism::zero1},
      {"zero2", Parallelism::zero2},   {"zero3", Parallelism::zero3},
      {"hybrid", Parallelism::hybrid}, {"stale", Parallelism::stale},
      {"server", Parallelism::server}, {"local", Parallelism::local}};
  WayOptions options;
  for (const auto& [name, value] : names)
    if (parallel == name) options.parallel = value;
  options.optimizer = optimizer == "sgd" ? gyreGradSgd : gyreGradAdamW;
  options.has_momentum = optimizer == "sgd" && momentum > 0;
  options.seed = seed;
  options.local_steps = local_steps;
  options.staleness = staleness;
  options.factor = factor;
  options.step_at = [told = *this](std::uint64_t count) { return told.step_at(count); };
  options.bucket_bytes = static_cast<std::size_t>(bucket_mb * (1 << 20));
  return options;
}

gyreGradStep_t Options::step_at(std::uint64_t count) const {
  gyreGradStep_t step = GYRE_GRAD_STEP_INITIALIZER;
  const double share =
      count < warmup ? static_cast<double>(count) / static_cast<double>(warmup) : 1;
  step.learningRate = static_cast<float>(rate * share);
  step.weightDecay = static_cast<float>(decay);
  step.momentum = optimizer == "sgd" ? static_cast<float>(momentum) : 0;
  return step;
}

std::string Options::agreed() const {
  std::ostringstream text;
  for (const std::string& word : {parallel, optimizer, checkpoint, resume}) text << word << '\n';
  for (const std::uint64_t number :
       {steps, local_steps, warmup, every, checkpoint_every, seed, std::uint64_t{batch},
        static_cast<std::uint64_t>(factor), static_cast<std::uint64_t>(staleness)})
    text << number << ' ';
  for (const double number : {rate, decay, momentum, bucket_mb, has_until_loss ? until_loss : -1})
    text << number << ' ';
  return text.str();
}

std::optional<Options> parse_options(int count, const char* const* arguments, int* exit_code) {
  Options options;
  CLI::App app("Trains a model on any number of ranks, by Gyre's gradient sync.", "train");
  add_model_options(app, options);
  add_rank_options(app, options);
  add_training_options(app, options);
  add_file_options(app, options);
  app.footer(footer);
  try {
    app.parse(count, arguments);
    options.has_until_loss = app.count("--until-loss") > 0;
    set_defaults(options, app.count("--rate") > 0);
    if (const std::string why = objection(options); !why.empty())
      throw CLI::ValidationError("train", why);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error) == 0 ? 0 : 2;
    return {};
  }
  return options;
}

}  // namespace gyre::training
