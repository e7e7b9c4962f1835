// lib/command_line: words become values, wrong ones become errors that name what was typed.
#include "lib/command_line/command_line.h"

#include "lib/command_line/wrap.h"
#include "tests/support/catch.h"

#include <string>
#include <vector>

namespace command_line_test {

using namespace gyre::command_line;

namespace {

struct Launch {
  int ranks = 0;
  double share = 0.5;
  std::uint64_t bytes = 0;
  std::string type = "float", target, dump = "none", matrix;
  std::vector<int> order;
  std::vector<std::string> variables, files, command;
  bool verify = false, quiet = false;
};

// What a program with options of every kind makes of these words.
struct Read {
  explicit Read(const std::vector<std::string>& words, bool has_rest = false) {
    CommandLine line("gyre test", "Tests.");
    line.add_option("-n,--np", launch.ranks, whole(1, 4096), "N", "how many ranks").is_required =
        true;
    line.add_option("--share", launch.share, number(0, 1), "SHARE", "of a step");
    line.add_option("-b,--bytes", launch.bytes, size(), "SIZE", "of a buffer");
    line.add_option("--type", launch.type, one_of({"float", "half"}), "TYPE", "of elements");
    line.add_option("--target,target", launch.target, any_text(), "PID", "whom to ask");
    line.add_option("--order", launch.order, whole(0), "RANKS", "along the ring");
    line.add_option("--env", launch.variables, any_text(), "NAME=VALUE", "a variable");
    line.add_option("--from", launch.files, any_text(), "FILES", "to read").takes_several = true;
    line.add_option("--dump", launch.dump, any_text(), "FILE", "to write").value_is_optional = true;
    line.add_flag("-v,--verify", launch.verify, "prove it");
    line.add_flag("-q,--quiet", launch.quiet, "say less");
    if (has_rest) line.add_rest(launch.command, "PROGRAM [ARGUMENTS]");
    answer = line.read(words);
    dumps = line.options()[8].count;
  }
  std::string text() const { return answer ? answer->text : "no answer"; }

  Launch launch;
  std::optional<EarlyEnd> answer;
  std::size_t dumps = 0;
};

}  // namespace

TEST_CASE("an option has its value after it, at it, or after =", "[command_line]") {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"-n", "4"}, {"-n4"}, {"-n=4"}, {"--np", "4"}, {"--np=4"}, {"-n", "3", "--np", "4"}}) {
    const Read read(words);
    CHECK_FALSE(read.answer);
    CHECK(read.launch.ranks == 4);
  }
}

TEST_CASE("each kind of value is read", "[command_line]") {
  const Read read({"-n",   "2",      "--share", "0.25",  "-b",     "1.5K",     "--type",
                   "half", "-vq",    "--order", "0,2,1", "--env",  "A=1,2",    "--env",
                   "B=-x", "--from", "a",       "b",     "--dump", "--target", "7"});
  CHECK(read.text() == "no answer");
  CHECK(read.launch.share == 0.25);
  CHECK(read.launch.bytes == 1536);
  CHECK(read.launch.type == "half");
  CHECK(read.launch.verify);
  CHECK(read.launch.quiet);
  CHECK(read.launch.order == std::vector<int>{0, 2, 1});
  CHECK(read.launch.variables == std::vector<std::string>{"A=1,2", "B=-x"});
  CHECK(read.launch.files == std::vector<std::string>{"a", "b"});
  CHECK(read.launch.dump == "none");
  CHECK(read.dumps == 1);
  CHECK(read.launch.target == "7");
  CHECK(Read({"-n", "2", "job"}).launch.target == "job");
  for (const char* before : {"-n2", "-v", "--dump", "--from=a"})
    CHECK(Read({"-n", "2", before, "--", "-job"}).launch.target == "-job");
}

TEST_CASE("a value is taken as it was typed", "[command_line]") {
  const std::vector<std::string> values = {"", "[a,b]", "{}", "-3", "a b", "%", "/v", "\"a\"", "="};
  std::vector<std::string> words = {"-n2"};
  for (const std::string& value : values) words.insert(words.end(), {"--env", value});
  const Read read(words);
  CHECK(read.text() == "no answer");
  CHECK(read.launch.variables == values);
  words = {"-n2", "prog"};
  words.insert(words.end(), values.begin(), values.end());
  words.insert(words.end(), {"--", "-v", "--"});
  CHECK(Read(words, true).launch.command ==
        std::vector<std::string>(words.begin() + 1, words.end()));
}

TEST_CASE("a program takes its own words, options among them", "[command_line]") {
  const std::vector<std::string> command = {"prog", "-n", "5", "--help"};
  for (const bool is_parted : {false, true}) {
    std::vector<std::string> words = {"-n", "2"};
    if (is_parted) words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    const Read read(words, true);
    CHECK_FALSE(read.answer);
    CHECK(read.launch.ranks == 2);
    CHECK(read.launch.command == command);
  }
}

TEST_CASE("an error names the option as it was typed, and what is wrong", "[command_line]") {
  struct Case {
    std::vector<std::string> words;
    std::string text;
  };
  const std::string see = "; see gyre test --help";
  for (const Case& one : std::vector<Case>{
           {{}, "give -n N, how many ranks" + see},
           {{"-n", "two"}, "-n: two is not a number" + see},
           {{"--np=two"}, "--np: two is not a number" + see},
           {{"--np="}, "--np needs a value (N)" + see},
           {{"--np", ""}, "--np: \"\" is not a number" + see},
           {{"-n", "2.5"}, "-n: 2.5 is not a whole number" + see},
           {{"-n", "0"}, "-n: 0 is not from 1 to 4096" + see},
           {{"-n", "-3"}, "-n: -3 is not from 1 to 4096" + see},
           {{"-n", "99999999999999999999"}, "-n: 99999999999999999999 is not from 1 to 4096" + see},
           {{"-n"}, "-n needs a value (N)" + see},
           {{"--np", "-v"}, "--np needs a value (N)" + see},
           {{"-n2", "--share", "nan"}, "--share: nan is not a number" + see},
           {{"-n2", "--share", "7"}, "--share: 7 is not from 0 to 1" + see},
           {{"-n2", "--bytes", "many"},
            "--bytes: many is not a size, as 512, 64K or 1.5G are" + see},
           {{"-n2", "--order", "0,-1"}, "--order: -1 is below 0" + see},
           {{"-n2", "--type", "haf"}, "--type: haf is not known; did you mean half?"},
           {{"-n2", "--type", "int"}, "--type: int is not one of float, half" + see},
           {{"-n2", "--verfiy"}, "there is no option --verfiy; did you mean --verify?"},
           {{"-n2", "--zebra=1"}, "there is no option --zebra" + see},
           {{"-n2", "-z"}, "there is no option -z" + see},
           {{"-n2", "--verify=1"}, "--verify takes no value" + see},
           {{"-n2", "--", "-a", "-b"}, "\"-b\" is one word too many" + see},
           {{"-n2", "a", "b"}, "\"b\" is one word too many" + see},
       }) {
    const Read read(one.words);
    REQUIRE(read.answer);
    CHECK_FALSE(read.answer->is_help);
    CHECK(read.answer->text == one.text);
  }
}

TEST_CASE("help is answered whatever else is wrong, and names every option", "[command_line]") {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--help"}, {"-h"}, {"-n", "two", "--help"}, {"--zebra", "-h"}, {"-vh"}}) {
    const Read read(words);
    REQUIRE(read.answer);
    CHECK(read.answer->is_help);
  }
  const std::string help = Read({"-h"}, true).text();
  CHECK(help.starts_with("Usage: gyre test [OPTIONS] [PID] PROGRAM [ARGUMENTS]\n\nTests.\n"));
  for (const char* text : {"\n  -n, --np N  ", "  how many ranks\n", "\n      --dump [FILE]  "}) {
    CAPTURE(text);
    CHECK(help.find(text) != help.npos);
  }
  CHECK(help.find("  -h, --help") != help.npos);
}

TEST_CASE("a word that has to be given need not have a name", "[command_line]") {
  std::string folder;
  CommandLine line("gyre test", "Tests.");
  line.add_option("folder", folder, any_text(), "FOLDER", "to write into").is_required = true;
  CHECK(line.help().starts_with("Usage: gyre test [OPTIONS] FOLDER\n"));
  const std::optional<EarlyEnd> refused = line.read({});
  REQUIRE(refused);
  CHECK(refused->text == "give FOLDER, to write into; see gyre test --help");
  CHECK_FALSE(line.read({"here"}));
  CHECK(folder == "here");
}

TEST_CASE("names may be cut short where the program says so", "[command_line]") {
  int iterations = 0, interval = 0;
  CommandLine line("perf", "Measures.");
  line.take_beginnings();
  line.add_option("--iters", iterations, whole(1), "N", "iterations");
  line.add_option("--interval", interval, whole(1), "N", "between them");
  CHECK_FALSE(line.read({"--it", "7", "--inter=8"}));
  CHECK(iterations == 7);
  CHECK(interval == 8);
  CHECK(line.read({"--i", "7"}));
}

TEST_CASE("lines are broken between words, and kept if they fit", "[command_line]") {
  CHECK(wrapped("one two three", 0, 8) == "one two\nthree");
  CHECK(wrapped("one two three", 2, 8) == "one\n  two\n  three");
  CHECK(wrapped("a\n  kept as it is\nb", 0, 20) == "a\n  kept as it is\nb");
  CHECK(wrapped("unbreakable it is", 0, 4) == "unbreakable\nit\nis");
  CHECK(wrapped("a:\n  one two three", 1, 11) == "a:\n   one two\n   three");
  CHECK(wrapped("    unbreakable it is", 0, 6) == "    unbreakable\n    it\n    is");
  CHECK(wrapped("unbreakable", 0, 6) == "unbreakable");
  CHECK(wrapped("", 4) == "");
  CHECK(wrapped("a\n\nb", 2, 20) == "a\n\n  b");
}

}  // namespace command_line_test
