#!/usr/bin/env python3
"""Ask a control plane as each proxy of the recorded cases, and write what it sends: CASE.PROXY.json.

    ask.py --start 'target/debug/pilotfish serve {config} {mesh} {networks} \
        --xds-address 127.0.0.1:{xds} --admin-address 127.0.0.1:{admin}' --into DIR cases

For each case the control plane is started on the case's files. In --start, {config} is the case's config.yaml,
{mesh} is `--mesh-config FILE` or nothing, {networks} is `--mesh-networks FILE` or nothing, {xds} and {admin} are free
ports. The control plane is ready when http://127.0.0.1:{admin}/ready answers 200.

Needs Python 3.10+ and the packages grpcio, xds-protos and pyyaml.
Exit status: 0 when every proxy was answered, else 1.
"""
import argparse
import concurrent.futures
import fnmatch
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
import xdsdump

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


def keep(case, got, folder):
    """Writes what each proxy of a case got; returns the errors of the others, of which no older file stays."""
    errors = []
    for proxy, answer in got.items():
        file = folder / f"{case.name}.{proxy}.json"
        if isinstance(answer, str):
            errors.append(f"{case.name}/{proxy}: {answer}")
            file.unlink(missing_ok=True)
        else:
            file.write_text(xdsdump.text(answer))
    return errors


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("roots", nargs="+", help="folders with cases")
    parser.add_argument("--start", required=True, help="command that starts the control plane")
    parser.add_argument("--into", required=True, type=pathlib.Path, help="folder for what the control plane sends")
    parser.add_argument("--only", action="append", help="case names that match this pattern; may repeat")
    parser.add_argument("--mode", choices=["sotw", "delta"], help="ask in this form, whatever the case says")
    parser.add_argument("--quiet", type=float, default=0.2, help="seconds without a response that end a step")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 2), help="cases at a time")
    return parser.parse_args()


def main():
    args = parse()
    chosen = [c for c in cases.find(args.roots) if any(fnmatch.fnmatch(c.name, p) for p in args.only or ["*"])]
    if not chosen:
        sys.exit("no case matches")
    args.into.mkdir(parents=True, exist_ok=True)
    xdsdump.load_all_protos()
    workers, failed = concurrent.futures.ThreadPoolExecutor(args.jobs), False
    for case, got in zip(chosen, workers.map(lambda c: run_case(c, args), chosen)):
        for error in keep(case, got, args.into):
            print(error, file=sys.stderr, flush=True)
            failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
