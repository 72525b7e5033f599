#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of cluster-configs for other programs: what they parse as, and that what they name of Trireme is there.

cluster_configs.py SRC METRICS HELP: METRICS is what /metrics of a gateway prints, HELP what `trireme serve --help` does.
Exit code 1 where something is wrong; what could not be looked at is said.
"""
import json
import pathlib
import re
import sys

src, metrics, usage = pathlib.Path(sys.argv[1]), open(sys.argv[2]).read(), open(sys.argv[3]).read()
configs = src / "cluster-configs"
printed = set(re.findall(r"^(trireme:[a-z0-9_]+)", metrics, re.M))
labels = dict()
for name, inside in re.findall(r"^(trireme:[a-z0-9_]+)\{([^}]*)\}", metrics, re.M):
    labels.setdefault(name, set()).update(re.findall(r"([a-z_]+)=", inside))
failures = []


def check_expression(where, text):
    names = re.findall(r"(?<![\w:])(trireme:[a-z0-9_]+)", text)
    if not names and "model_name:trireme_" not in text:
        failures.append(f"{where}: no metric in {text}")
    for name in names:
        if name not in printed:
            failures.append(f"{where}: /metrics has no {name}")
    # Labels that are grouped by must be those of every metric in there, or the aggregate is empty.
    for group in re.findall(r"\bby \(([^)]*)\)", text):
        for label in (part.strip() for part in group.split(",")):
            for name in names:
                if label not in labels.get(name, set()) | {"instance", "job"}:
                    failures.append(f"{where}: {name} has no label {label}")


def check_options(path):
    """An example is no slower than without a line of it: sizes of batches are the defaults, or larger."""
    lines = dict(re.findall(r"^([a-z-]+): *([^#\n]*)", path.read_text(), re.M))
    cpu = lines.get("backend", "").strip() == "cpu"
    least = {"max-num-seqs": 128 if cpu else 256, "max-num-batched-tokens": 512 if cpu else 8192}
    for name, value in least.items():
        few = path.name == "experts-24gb.yaml" and name == "max-num-seqs"  # for a few sequences, which it says
        if name in lines and int(lines[name]) < value and not few:
            failures.append(f"{path.name}: {name} {lines[name].strip()} is slower than the default, {value}")
    for name in lines:
        if f"--{name} " not in usage and f"--[no-]{name}" not in usage:
            failures.append(f"{path.name}: there is no option {name}")


def check_dashboard(path):
    board = json.loads(path.read_text())
    targets = [t for p in board["panels"] for t in p["targets"]]
    for target in targets:
        check_expression(path.name, target["expr"])
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            check_expression(path.name, variable["definition"])
    if len({p["id"] for p in board["panels"]}) != len(board["panels"]) or len(targets) < 12:
        failures.append(f"{path.name}: {len(targets)} queries, or panels with the same number")


def check_rules(path, yaml):
    rules = [r for g in yaml.safe_load(path.read_text())["groups"] for r in g["rules"]]
    recorded = {r["record"] for r in rules if "record" in r}
    for rule in rules:
        check_expression(path.name, rule["expr"])
        for name in re.findall(r"model_name:trireme_[\w:]+", rule["expr"]):
            if name not in recorded:
                failures.append(f"{path.name}: nothing records {name}")
        if "alert" in rule and not rule["annotations"]["summary"]:
            failures.append(f"{path.name}: {rule['alert']} says nothing")
    if len(rules) < 8:
        failures.append(f"{path.name}: {len(rules)} rules")


def check_pods(path, yaml):
    routes = set(re.findall(r'\{\.path = "(/[a-z/0-9_]+)"', (src / "client/gateway/paths.c").read_text()))
    documents = [d for d in yaml.safe_load_all(path.read_text()) if d]
    pods = [d["spec"]["template"]["spec"] for d in documents if d["kind"] in ("Deployment", "StatefulSet", "Job")]
    for pod in pods:
        claims = {v["name"] for v in pod["volumes"]}
        claims |= {c["metadata"]["name"] for d in documents for c in d["spec"].get("volumeClaimTemplates", [])}
        for container in pod["containers"]:
            paths = {kind: container[kind + "Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
            if paths != {"startup": "/live", "liveness": "/live", "readiness": "/ready"} or not set(paths.values()) <= routes:
                failures.append(f"{path.name}: probes {paths}")
            for option in (a for a in container["args"] if a.startswith("--")):
                if not re.search(rf"{option}\b", usage.replace("[no-]", "")):
                    failures.append(f"{path.name}: trireme serve has no {option}")
            for mount in container["volumeMounts"]:
                if mount["name"] not in claims:
                    failures.append(f"{path.name}: no volume {mount['name']}")
    if not pods:
        failures.append(f"{path.name}: no pods")


for example in sorted(configs.glob("*.yaml")):
    check_options(example)
check_dashboard(configs / "grafana/trireme.json")
try:
    import yaml
except ImportError:
    print("python3 has no yaml: rules and manifests were not looked at")
else:
    check_rules(configs / "prometheus/trireme.rules.yml", yaml)
    for manifest in sorted((configs / "kubernetes").glob("*.yaml")):
        check_pods(manifest, yaml)
for failure in failures:
    print(failure)
sys.exit(bool(failures))
