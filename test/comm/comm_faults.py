"""How a job of several ranks ends when one of them goes wrong: quickly, with a non-zero code and a message that names it.
Run: comm_faults.py MPIEXEC PROGRAM"""
import os, re, signal, subprocess, sys, threading, time

MPIEXEC, PROGRAM = sys.argv[1:3]
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
failures = []


def check(name, condition, output):
    if not condition:
        failures.append(name)
        print(f"FAILED: {name}\n--- output\n{output}\n---")


class Job:
    """mpirun of the fault program; collects its output and the ranks' process ids."""

    def __init__(self, ranks, *arguments):
        command = [MPIEXEC, "--oversubscribe", "-n", str(ranks), PROGRAM, *map(str, arguments)]
        self.start = time.monotonic()
        self.process = subprocess.Popen(command, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        self.pids = {}
        self.ready = threading.Event()
        self.ranks = ranks
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            if match := re.match(r"rank (\d+) pid (\d+) ready", line):
                self.pids[int(match[1])] = int(match[2])
                if len(self.pids) == self.ranks:
                    self.ready.set()

    def wait_ready(self):
        if not self.ready.wait(60):
            raise SystemExit("the job did not start:\n" + "".join(self.lines))
        self.start = time.monotonic()

    def end(self, limit):
        """(exit code, output, seconds since ready); a code of None: it had to be killed."""
        try:
            code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
            for pid in self.pids.values():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.process.kill()
        seconds = time.monotonic() - self.start
        self.reader.join(10)
        return code, "".join(self.lines), seconds

    def gone(self, within):
        end = time.monotonic() + within
        while time.monotonic() < end:
            if not any(os.path.exists(f"/proc/{pid}") for pid in self.pids.values()):
                return True
            time.sleep(0.05)
        return False


def judge(name, job, limit, *patterns, absent=(), success=False):
    code, output, seconds = job.end(limit)
    check(f"{name}: ends by itself within {limit} s", code is not None, output)
    check(f"{name}: exit code is {'0' if success else 'not 0'} (it is {code})", (code == 0) == success, output)
    for pattern in patterns:
        check(f"{name}: says /{pattern}/", re.search(pattern, output), output)
    for pattern in absent:
        check(f"{name}: does not say /{pattern}/", not re.search(pattern, output), output)
    check(f"{name}: no process is left", job.gone(5), output)
    print(f"{name}: {seconds:.1f} s")


def run(name, ranks, arguments, limit, *patterns, **more):
    job = Job(ranks, *arguments)
    job.wait_ready()
    judge(name, job, limit, *patterns, **more)


def main():
    one_report = r"did not complete within"
    for mode in ("inline", "thread"):
        run(f"a rank that never joins ({mode})", 3, ["absent", mode, 1, 2], 30,
            r"all_reduce #2 \(4\.0 MB float32\) did not complete within 2 s; missing: rank 1 on \S+ \(last entered broadcast #1; "
            r"writing weights since \d+ s\); raise comm\.timeout_s",
            r"warning: all_reduce #2 .* has waited for \d+ s; missing: rank 1 on", absent=[one_report + r"[\s\S]*" + one_report])
    run("a rank in another collective", 3, ["elsewhere", "inline", 60, 2], 30,
        r"all_reduce #2 .*did not complete.*missing: rank 1 on \S+ \((is in|last entered) broadcast #2|"
        r"broadcast #2 .*did not complete.*missing: rank 0 on \S+ \(is in all_reduce #2\)")
    run("an exchange of World", 3, ["control", "inline", 60, 2], 30,
        r"gather #\d+ \(1 B\) did not complete within 2 s; missing: rank 1 on")
    run("a message that never comes", 2, ["recv", "inline", 60, 2], 30, r"(recv from rank 1|all_reduce #2) .*did not complete.*missing: rank")
    run("a rank that throws", 3, ["throw", "inline", 60, 600], 20, r"rank 1 on \S+: error: this rank failed", absent=[one_report])
    run("a rank that throws while its progress thread waits", 3, ["throw_busy", "thread", 60, 600], 20,
        r"rank 1 on \S+: error: this rank failed", absent=[one_report])
    run("one rank alone that throws nothing", 1, ["none"], 20, success=True)

    for victim in (0, 2):
        job = Job(3, "steps", "inline", 60, 600)
        job.wait_ready()
        time.sleep(0.5)
        os.kill(job.pids[victim], signal.SIGKILL)
        job.start = time.monotonic()
        judge(f"rank {victim} is killed", job, 10, r"signal 9")

    job = Job(3, "steps", "inline", 1, 4)
    job.wait_ready()
    time.sleep(0.5)
    os.kill(job.pids[2], signal.SIGSTOP)
    judge("a rank that is stopped", job, 30, r"warning: all_reduce #\d+ .*missing: rank 2 on \S+ \(no answer\)",
          r"all_reduce #\d+ .*did not complete within 4 s; missing: rank 2 on \S+ \(no answer\)")

    job = Job(3, "steps", "inline", 1, 60)
    job.wait_ready()
    os.kill(job.pids[1], signal.SIGSTOP)
    time.sleep(4)
    os.kill(job.pids[1], signal.SIGCONT)
    judge("a rank that is stopped and goes on", job, 60, r"warning: .*missing: rank 1 on \S+ \(no answer\)", absent=[one_report], success=True)

    start = time.monotonic()
    for _ in range(5):
        code, output, _seconds = Job(2, "none").end(30)
        check("a normal end", code == 0 and "rror" not in output, output)
    print(f"five normal runs: {time.monotonic() - start:.1f} s")

    alone = dict(ENV, SLURM_NTASKS="4")
    for variable in ("SLURM_STEP_NUM_TASKS", "LOCKSTEP_ALLOW_SINGLETON", "PMI_SIZE"):
        alone.pop(variable, None)
    lonely = subprocess.run([PROGRAM, "none"], env=alone, capture_output=True, text=True, timeout=60)
    check("a task of four that believes to be alone is refused", lonely.returncode != 0 and "SLURM_NTASKS is 4" in lonely.stderr, lonely.stderr)
    allowed = subprocess.run([PROGRAM, "none"], env=dict(alone, LOCKSTEP_ALLOW_SINGLETON="1"), capture_output=True, text=True, timeout=60)
    check("…unless it is meant", allowed.returncode == 0, allowed.stderr)

    print("failed: " + "; ".join(failures) if failures else "all as expected")
    sys.exit(1 if failures else 0)


main()
