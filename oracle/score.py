#!/usr/bin/env python3
"""Score a control plane against the recorded cases: how much of what it sends is what istiod sends.

For each case the control plane is started on the case's files, asked by each of the case's proxies, and
compared with the recording. Prints a line per case, the fields that differ most often over all cases, and a
table by area (the first word of a case's name).

    score.py --start 'target/release/pilotfish serve {config} {mesh} {networks} \
        --xds-address 127.0.0.1:{xds} --admin-address 127.0.0.1:{admin}' cases

In --start, {config} is the case's config.yaml, {mesh} is `--mesh-config FILE` or nothing, {networks} is
`--mesh-networks FILE` or nothing, {xds} and {admin} are free ports. The control plane is ready when
http://127.0.0.1:{admin}/ready answers 200.

Needs Python 3.10+ and the packages grpcio, xds-protos and pyyaml.
Exit status: 0 when the share of equal resources is at least --min (and that of the everyday areas at least
--min-everyday), else 1.
"""
import argparse
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import cases
import xdsdiff
import xdsdump

# In the order in which the table shows them; the first five are plain services and everyday routing.
AREAS = ("k8s", "se", "we", "vs", "dr", "gw", "sc", "sec", "ef", "tel", "mesh", "grpc", "gwapi", "ingress", "net")
EVERYDAY = AREAS[:5]


def free_ports(count):
    """Ports that are free now: held together, so that they differ."""
    held = [socket.socket() for _ in range(count)]
    try:
        for s in held:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in held]
    finally:
        for s in held:
            s.close()


def wait_ready(process, url, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"exited with {process.returncode} before it was ready")
        try:
            with urllib.request.urlopen(url, timeout=1) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.02)
    raise RuntimeError(f"not ready after {seconds} s")


def command_line(start, case, xds, admin):
    def option(flag, path):
        return f"{flag} {shlex.quote(str(path))}" if path else ""
    return shlex.split(start.format(
        config=shlex.quote(str(case.config)), xds=xds, admin=admin,
        mesh=option("--mesh-config", case.mesh), networks=option("--mesh-networks", case.networks)))


def ask(proxy, xds, args):
    """What the control plane sends to the proxy, or the error as text."""
    try:
        return xdsdump.dump(
            f"127.0.0.1:{xds}", proxy.node(), args.mode or proxy.mode, 10, args.quiet, proxy.listeners)
    except (SystemExit, Exception) as error:
        return f"{type(error).__name__}: {error}"


def run_case(case, args):
    """Returns {proxy name: dump, or the error as text}."""
    xds, admin = free_ports(2)
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command_line(args.start, case, xds, admin), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_ready(process, f"http://127.0.0.1:{admin}/ready", 20)
            with concurrent.futures.ThreadPoolExecutor(4) as side_by_side:
                answers = side_by_side.map(lambda proxy: ask(proxy, xds, args), case.proxies)
                return {proxy.name: answer for proxy, answer in zip(case.proxies, answers)}
        except RuntimeError as error:
            log.seek(0)
            tail = log.read().decode(errors="replace")[-400:]
            return {proxy.name: f"{error}: {tail}" for proxy in case.proxies}
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Area:
    def __init__(self):
        self.same = self.total = self.whole = self.cases = 0

    def add(self, report):
        self.same += sum(report.same.values())
        self.total += sum(report.total.values())
        self.whole += report.share() == 1.0
        self.cases += 1

    def share(self):
        return self.same / self.total if self.total else 0.0

    def json(self):
        return {"same": self.same, "total": self.total, "share": self.share(), "whole": self.whole,
                "cases": self.cases}


def print_areas(areas, everyday):
    print("area       equal resources            cases equal as a whole")
    rows = sorted(areas.items(), key=lambda item: (AREAS.index(item[0]) if item[0] in AREAS else len(AREAS), item[0]))
    for name, area in rows + [("everyday", everyday)]:
        if area.cases:
            print(f"{name:9} {area.same:6}/{area.total:<6} {100 * area.share():7.2f} %   {area.whole:4}/{area.cases}")


def differences(report, most):
    for path, count in report.paths.most_common(most):
        where, wanted, given = report.sample[path]
        yield {"path": path, "count": count, "where": where, "want": xdsdiff.show(wanted), "got": xdsdiff.show(given)}


def score(case, got, total, args):
    """Compares one case; returns its report and the errors of its proxies."""
    report = xdsdiff.Report()
    errors = []
    for proxy in case.proxies:
        answer = got[proxy.name]
        if isinstance(answer, str):
            errors.append(f"{proxy.name}: {answer}")
            answer = {}
        elif args.keep:
            (pathlib.Path(args.keep) / f"{case.name}.{proxy.name}.json").write_text(xdsdump.text(answer))
        for target in (report, total):
            target.add(f"{case.name}/{proxy.name}", case.golden(proxy), answer, args.ignore)
    return report, errors


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("roots", nargs="+", help="folders with cases")
    parser.add_argument("--start", required=True, help="command that starts the control plane")
    parser.add_argument("--only", action="append", help="case names that match this pattern; may repeat")
    parser.add_argument("--ignore", action="append", default=[], help="dotted field path to leave out; may repeat")
    parser.add_argument("--mode", choices=["sotw", "delta"], help="ask in this form, whatever the case says")
    parser.add_argument("--most", type=int, default=20, help="rows of each list of differences")
    parser.add_argument("--min", type=float, default=0.0, help="share of equal resources that counts as a pass")
    parser.add_argument("--min-everyday", type=float, default=0.0, help=f"the same for the areas {', '.join(EVERYDAY)}")
    parser.add_argument("--quiet", type=float, default=0.2, help="seconds without a response that end a step")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 2), help="cases at a time")
    parser.add_argument("--keep", help="folder for what the control plane sent: CASE.PROXY.json")
    parser.add_argument("--json", help="file for the result as JSON")
    parser.add_argument("--summary", action="store_true", help="no line for cases that are equal")
    args = parser.parse_args()
    if args.keep:
        pathlib.Path(args.keep).mkdir(parents=True, exist_ok=True)
    return args


def main():
    args = parse()
    chosen = [c for c in cases.find(args.roots) if any(fnmatch.fnmatch(c.name, p) for p in args.only or ["*"])]
    if not chosen:
        sys.exit("no case matches")
    xdsdump.load_all_protos()
    total, everyday, areas, rows = xdsdiff.Report(), Area(), {}, []
    workers = concurrent.futures.ThreadPoolExecutor(args.jobs)
    for case, got in zip(chosen, workers.map(lambda c: run_case(c, args), chosen)):
        report, errors = score(case, got, total, args)
        name = case.name.split("-")[0]
        areas.setdefault(name, Area()).add(report)
        if name in EVERYDAY:
            everyday.add(report)
        share = report.share()
        rows.append({"name": case.name, "share": share, "same": sum(report.same.values()),
                     "total": sum(report.total.values()), "errors": errors})
        if share < 1.0 or errors or not args.summary:
            print(f"{100 * share:7.2f}%  {case.name}" + "".join(f"\n          {e}" for e in errors), flush=True)
    print()
    total.print(args.most)
    print()
    print_areas(areas, everyday)
    whole = sum(row["share"] == 1.0 for row in rows)
    print(f"equal: {100 * total.share():.2f} % of {sum(total.total.values())} resources; whole cases equal: {whole}/{len(rows)}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({
            "share": total.share(), "same": sum(total.same.values()), "total": sum(total.total.values()),
            "whole": whole, "everyday": everyday.json(), "areas": {k: a.json() for k, a in sorted(areas.items())},
            "cases": rows, "differences": list(differences(total, None)),
        }, indent=1) + "\n")
    passed = total.share() >= args.min and (not everyday.cases or everyday.share() >= args.min_everyday)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
