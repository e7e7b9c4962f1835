// Trains a model on any number of ranks by gradient sync, without a framework: C++ on gyre.h and
// gradsync.h. Ranks are processes that a launcher starts, threads, or a single process.
#include "bench/training/job.h"
#include "bench/training/train/char_model.h"
#include "bench/training/train/digits_model.h"
#include "bench/training/train/trainer.h"

#include <nlohmann/json.hpp>

#include <fstream>

namespace gyre::training {
namespace {

struct Data {
  DigitsData digits;
  TextData text;
  const std::string& source(const Options& options) const {
    return options.model == "gpt" ? text.source : digits.source;
  }
};

Data load(const Options& options) {
  Data data;
  const std::string why = options.model == "gpt"
                              ? load_text(options.data, &data.text)
                              : load_digits(options.data, options.seed, &data.digits);
  if (!why.empty()) fail(why);
  if (options.model == "gpt" && data.text.codes.size() <= options.length)
    fail(std::to_string(data.text.codes.size()) + " characters are too few for a --context of " +
         std::to_string(options.length));
  return data;
}

std::unique_ptr<Model> make_model(const Options& options, const Data& data) {
  if (options.model == "gpt")
    return std::make_unique<CharModel>(data.text,
                                       CharShape{.layers = options.layers,
                                                 .width = options.width,
                                                 .heads = options.heads,
                                                 .length = options.length},
                                       options.batch);
  return std::make_unique<DigitsModel>(
      data.digits, DigitsShape{.hidden = options.layers, .width = options.width}, options.batch);
}

void write_json(std::ofstream& file, const Options& options, const Curve& curve, int ranks,
                std::size_t parameters) {
  nlohmann::ordered_json document = {{"model", options.model},
                                     {"parallel", options.parallel},
                                     {"optimizer", options.optimizer},
                                     {"ranks", ranks},
                                     {"as", options.threads > 0 ? "threads" : "processes"},
                                     {"batch", options.batch},
                                     {"parameters", parameters},
                                     {"exposed_percent", 100 * curve.exposed_share},
                                     {"losses", curve.losses},
                                     {"seconds", curve.seconds}};
  if (curve.score.asked > 0)
    document["accuracy"] =
        static_cast<double>(curve.score.right) / static_cast<double>(curve.score.asked);
  if (!(file << document.dump() << '\n').flush()) fail("cannot write " + options.json);
}

void report(const Curve& curve) {
  if (curve.losses.empty())
    std::printf("no step was left to make\n");
  else
    std::printf("%zu steps in %.1f s, loss %.4f to %.4f, exposed communication %.1f %%\n",
                curve.losses.size(), curve.seconds.back(), curve.losses.front(),
                curve.losses.back(), 100 * curve.exposed_share);
  if (curve.score.asked > 0)
    std::printf(
        "test accuracy %.2f %% of %llu digits that were not learnt\n",
        100 * static_cast<double>(curve.score.right) / static_cast<double>(curve.score.asked),
        static_cast<unsigned long long>(curve.score.asked));
}

void train(gyreComm_t comm, const Options& options, const Data& data) {
  const int rank = bench::rank_of(comm), ranks = bench::size_of(comm);
  const std::unique_ptr<Model> model = make_model(options, data);
  const std::size_t parameters = count_elements(model->tensors());
  if (rank == 0)
    std::printf("%s: %zu parameters\nfrom %s\n%d rank%s, %s, batch %zu of each, %s, seed %llu\n",
                model->description().c_str(), parameters, data.source(options).c_str(), ranks,
                ranks > 1 ? "s" : "", options.parallel.c_str(), options.batch,
                options.optimizer.c_str(), static_cast<unsigned long long>(options.seed));
  std::fflush(stdout);
  // Opened now, as it may be that it cannot be.
  std::ofstream json;
  if (rank == 0 && !options.json.empty()) json.open(options.json);
  if (!json) fail("cannot write " + options.json);
  Trainer trainer(comm, *model, options);
  const Curve curve = trainer.run();
  if (rank != 0) return;
  report(curve);
  if (json.is_open()) write_json(json, options, curve, ranks, parameters);
}

}  // namespace
}  // namespace gyre::training

int main(int count, char** arguments) {
  using namespace gyre::training;
  int exit_code = 0;
  do_or_fail([&] {
    const auto options = parse_options(count, arguments, &exit_code);
    if (!options) return;
    const Data data = load(*options);
    const auto run = [&](gyreComm_t comm) { do_or_fail([&] { train(comm, *options, data); }); };
    if (options->threads > 0)
      gyre::bench::run_threads(options->threads, run);
    else
      gyre::bench::run_process(run, true);
  });
  return exit_code;
}
