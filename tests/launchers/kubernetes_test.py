"""docs/examples/kubernetes: Kubernetes' own schemas take the manifest of the Job, and two ranks
with its variables and files, as pods have them, meet and train."""
import json
import os
import subprocess
import unittest

import jobs

MANIFEST = os.path.join(jobs.ROOT, "docs", "examples", "kubernetes", "job.yaml")
RANKS = 2


def validated(path):
    """(exit code, what the schemas of all kinds in the file say)"""
    program = os.path.join(jobs.wheels("kubernetes-validate"), "bin", "kubernetes-validate")
    done = subprocess.run([program, "--strict", path], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, timeout=60)
    return done.returncode, done.stdout


def documents(path):
    """Those of a file of YAML, by their kind."""
    python = os.path.join(jobs.wheels("kubernetes-validate"), "bin", "python")
    script = "import json, sys, yaml\n" \
             "print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))"
    text = subprocess.run([python, "-c", script, path], text=True, check=True, timeout=60,
                          stdout=subprocess.PIPE).stdout
    return {each["kind"]: each for each in json.loads(text)}


class Kubernetes(jobs.Jobs):
    ranks = RANKS

    def test_the_schemas_take_the_manifest_and_find_what_is_wrong(self):
        self.assertEqual(validated(MANIFEST)[0], 0, validated(MANIFEST)[1])
        text = jobs.page("docs/examples/kubernetes/job.yaml")
        for right, wrong in (("completionMode: Indexed", "completionsMode: Indexed"),
                             ("completions: 2", "completions: two"),
                             ("clusterIP: None", "clusterIP: [None]"),
                             ("subPath: secret", "subpath: secret")):
            self.assertEqual(text.count(right), 1, right)
            path = self.site.write("wrong.yaml", text.replace(right, wrong))
            self.assertNotEqual(validated(path)[0], 0, f"{wrong} was taken")

    def test_its_parts_fit_each_other(self):
        kinds = documents(MANIFEST)
        job, service = kinds["Job"], kinds["Service"]
        pod = job["spec"]["template"]["spec"]
        rank = pod["containers"][0]
        variables = {each["name"]: each["value"] for each in rank["env"]}
        self.assertEqual(pod["subdomain"], service["metadata"]["name"])
        self.assertEqual(service["spec"]["selector"],
                         {"batch.kubernetes.io/job-name": job["metadata"]["name"]})
        self.assertEqual(job["spec"]["completions"], job["spec"]["parallelism"])
        self.assertEqual(variables["GYRE_SIZE"], str(job["spec"]["completions"]))
        self.assertEqual(variables["GYRE_RENDEZVOUS_ADDRESS"].rsplit(":", 1)[0],
                         f"{job['metadata']['name']}-0.{service['metadata']['name']}")
        self.assertEqual(rank["volumeMounts"][0]["mountPath"],
                         variables["GYRE_RENDEZVOUS_SECRET_FILE"])

    def test_two_pods_train(self):
        job = documents(MANIFEST)["Job"]
        rank = job["spec"]["template"]["spec"]["containers"][0]
        exports = "\n".join(f"export {each['name']}={each['value']}" for each in rank["env"])
        path = rank["volumeMounts"][0]["mountPath"]
        mode = job["spec"]["template"]["spec"]["volumes"][0]["secret"]["defaultMode"]
        # As kubelet does it: in memory, a file of root's that others cannot read.
        mount = f"mount -t tmpfs none /run\nmkdir -p {os.path.dirname(path)}\n" \
                f"head -c 32 $HOME/secret >{path}\nchmod {mode:o} {path}"
        self.site.write("secret", "0123456789abcdef" * 2)
        self.check(self.run_on_both(lambda host: f"set -e\n{mount}\n{exports}\n"
                                    f"export JOB_COMPLETION_INDEX={host}\n./program"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
