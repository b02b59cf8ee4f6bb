//! Queue of log lines: threads that log append to it without waiting; one thread writes.
//!
//! Beyond [`CAPACITY`] lines are dropped and counted. A pipe that nobody reads stops the writing thread only.

use parking_lot::{Condvar, Mutex};
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Limit on the bytes of lines that are queued or being written.
const CAPACITY: usize = 1 << 20;
/// Free bytes of the queue at which dropped lines are reported, so that the report itself is not dropped.
const ROOM_TO_REPORT: usize = CAPACITY / 2;
/// Pause before the next attempt if the output is full and another process has made it non-blocking.
const RETRY: Duration = Duration::from_millis(20);

/// Log lines that wait for the thread that writes them.
#[derive(Default)]
pub(crate) struct LogQueue {
    state: Mutex<State>,
    /// Wakes the writing thread.
    filled: Condvar,
    /// Wakes threads that wait for an empty queue.
    emptied: Condvar,
}

#[derive(Default)]
struct State {
    queued: Vec<u8>,
    /// Bytes of the batch in the writing thread that are not written yet.
    writing: usize,
    /// Number of dropped lines since the start.
    dropped: u64,
    /// Number of dropped lines that were reported.
    reported: u64,
    is_closed: bool,
}

impl State {
    fn bytes(&self) -> usize {
        self.queued.len() + self.writing
    }
}

impl LogQueue {
    /// Returns a queue with its writing thread.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(out: impl Write + Send + 'static) -> io::Result<Arc<Self>> {
        let queue = Arc::new(Self::default());
        let of_thread = queue.clone();
        thread::Builder::new().name("log".to_owned()).spawn(move || of_thread.write_all_to(out))?;
        Ok(queue)
    }

    /// Appends lines, or drops and counts them.
    pub(crate) fn push(&self, lines: &[u8]) {
        let mut state = self.state.lock();
        if state.bytes() + lines.len() > CAPACITY {
            state.dropped += count(lines);
            return;
        }
        state.queued.extend_from_slice(lines);
        drop(state);
        self.filled.notify_one();
    }

    /// Returns the number of dropped lines since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.state.lock().dropped
    }

    /// Waits until all queued lines are written, at most for `longest`. Returns false if something is left.
    pub(crate) fn flush(&self, longest: Duration) -> bool {
        let deadline = Instant::now() + longest;
        let mut state = self.state.lock();
        while state.bytes() > 0 {
            if self.emptied.wait_until(&mut state, deadline).timed_out() {
                return state.bytes() == 0;
            }
        }
        true
    }

    /// Ends the writing thread once it has written everything.
    #[cfg(test)]
    fn close(&self) {
        self.state.lock().is_closed = true;
        self.filled.notify_one();
    }

    /// Writes batches until the queue is closed.
    fn write_all_to(&self, mut out: impl Write) {
        while let Some(batch) = self.take() {
            if self.write(&mut out, &batch)
                && let Some(lines) = self.to_report()
            {
                tracing::warn!(lines, "log lines were dropped: the log was not read in time or not writable");
            }
        }
    }

    /// Waits for lines and takes all of them; `None` once the queue is closed and empty.
    fn take(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        while state.queued.is_empty() {
            if state.is_closed {
                return None;
            }
            self.filled.wait(&mut state);
        }
        let batch = std::mem::take(&mut state.queued);
        state.writing = batch.len();
        Some(batch)
    }

    /// Writes a batch; after an error the lines that are left of it are dropped. Returns true if all was
    /// written.
    fn write(&self, out: &mut impl Write, batch: &[u8]) -> bool {
        let mut left = batch;
        while !left.is_empty() {
            match out.write(left) {
                Ok(0) => break,
                Ok(written) => left = left.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(RETRY),
                Err(_) => break,
            }
            self.state.lock().writing = left.len();
        }
        let mut state = self.state.lock();
        state.writing = 0;
        state.dropped += count(left);
        if state.queued.is_empty() {
            self.emptied.notify_all();
        }
        left.is_empty()
    }

    /// Returns the number of lines to report as dropped, if there are any and the report has room. They count
    /// as reported.
    fn to_report(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let lines = state.dropped - state.reported;
        if lines == 0 || state.bytes() > CAPACITY - ROOM_TO_REPORT {
            return None;
        }
        state.reported = state.dropped;
        Some(lines)
    }
}

/// Writer of an event for `tracing`.
pub(crate) struct LogWriter(pub(crate) Arc<LogQueue>);

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn count(lines: &[u8]) -> u64 {
    lines.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, Read};
    use std::thread::JoinHandle;

    const LINE: &[u8] = b"0123456789 0123456789 0123456789 0123456789 0123456789 0123456789\n";

    /// A queue that writes to a pipe, its thread, and the other end of the pipe.
    fn piped() -> (Arc<LogQueue>, JoinHandle<()>, PipeReader) {
        let (reader, writer) = io::pipe().unwrap();
        let queue = Arc::new(LogQueue::default());
        let of_thread = queue.clone();
        let thread = thread::spawn(move || {
            let subscriber = tracing_subscriber::fmt().with_ansi(false).without_time().with_target(false);
            let of_log = of_thread.clone();
            let subscriber = subscriber.with_writer(move || LogWriter(of_log.clone())).finish();
            tracing::subscriber::with_default(subscriber, || of_thread.write_all_to(writer));
        });
        (queue, thread, reader)
    }

    #[test]
    fn pipe_without_reader_stops_no_one_and_dropped_lines_are_reported_once_it_is_read() {
        let (queue, thread, mut reader) = piped();
        let lines = 4 * CAPACITY / LINE.len();
        for _ in 0..lines {
            queue.push(LINE);
        }
        assert!(queue.state.lock().bytes() <= CAPACITY);
        assert!(!queue.flush(Duration::from_millis(10)), "nobody reads");
        let dropped = queue.dropped();
        assert!(dropped > lines as u64 / 2, "{dropped} of {lines}");
        let reading = thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        assert!(queue.flush(Duration::from_secs(60)));
        queue.push(b"after\n");
        queue.close();
        thread.join().unwrap();
        let text = reading.join().unwrap();
        let written = text.lines().filter(|line| line.as_bytes() == &LINE[..LINE.len() - 1]).count() as u64;
        assert_eq!(written + dropped, lines as u64, "each line is written whole or counted");
        assert_eq!(text.matches(&format!("lines={dropped}\n")).count(), 1, "{dropped}");
        assert_eq!(queue.dropped(), dropped, "the report itself is not dropped");
    }

    /// Fails so often, then succeeds.
    struct Failing(u32, ErrorKind, Arc<Mutex<Vec<u8>>>);

    impl Write for Failing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 > 0 {
                self.0 -= 1;
                return Err(self.1.into());
            }
            let some = bytes.len().min(3);
            self.2.lock().extend_from_slice(&bytes[..some]);
            Ok(some)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn failed_writes_count_as_dropped_and_interrupted_or_full_ones_are_repeated() {
        for (kind, dropped) in [
            (ErrorKind::StorageFull, 2),
            (ErrorKind::BrokenPipe, 2),
            (ErrorKind::Interrupted, 0),
            (ErrorKind::WouldBlock, 0),
        ] {
            let (queue, written) = (LogQueue::default(), Arc::default());
            let mut out = Failing(1, kind, Arc::clone(&written));
            queue.push(b"one\ntwo\n");
            let batch = queue.take().unwrap();
            assert_eq!(queue.write(&mut out, &batch), dropped == 0, "{kind}");
            assert_eq!(queue.dropped(), dropped, "{kind}");
            queue.push(b"three\n");
            let batch = queue.take().unwrap();
            assert!(queue.write(&mut out, &batch), "{kind}");
            assert_eq!(queue.to_report(), (dropped > 0).then_some(dropped), "{kind}");
            assert_eq!(queue.to_report(), None, "{kind}: once");
            let text: &[u8] = if dropped > 0 { b"three\n" } else { b"one\ntwo\nthree\n" };
            assert_eq!(*written.lock(), text, "{kind}");
        }
    }
}
