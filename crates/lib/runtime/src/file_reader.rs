//! File reads from async tasks. An unresponsive file system blocks one thread per reader, and callers time
//! out.

use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Timeout of a read. A healthy network file system answers within milliseconds.
const DEADLINE: Duration = Duration::from_secs(30);

/// Runs blocking reads on a dedicated thread, one at a time. Clones share that thread.
#[derive(Clone, Debug)]
pub struct FileReader {
    turn: Arc<Semaphore>,
}

impl Default for FileReader {
    fn default() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)) }
    }
}

impl FileReader {
    /// Runs a read and waits at most 30 s for its result. A read that takes longer is not aborted, and later
    /// ones wait for it.
    ///
    /// # Errors
    /// On timeout, or if the read panics.
    pub async fn run<T: Send + 'static>(&self, read: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let turn = Arc::clone(&self.turn);
        let running = async {
            let turn = turn.acquire_owned().await.map_err(io::Error::other)?;
            let reading = tokio::task::spawn_blocking(move || {
                let result = read();
                drop(turn);
                result
            });
            reading.await.map_err(io::Error::other)
        };
        timeout(DEADLINE, running).await.unwrap_or_else(|_| {
            let reason = format!("the file system has not answered for {} s", DEADLINE.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, reason))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    /// The clock of a paused runtime stands still while a blocking thread runs, so it is advanced by hand.
    async fn until_deadline<T>(reading: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        tokio::pin!(reading);
        loop {
            tokio::select! {
                biased;
                result = &mut reading => return result,
                () = tokio::task::yield_now() => tokio::time::advance(Duration::from_secs(1)).await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_hangs_times_out_and_later_reads_start_no_thread_until_it_returns() {
        let reader = FileReader::default();
        let (release, hung) = mpsc::channel::<()>();
        let started = Arc::new(AtomicUsize::new(0));
        let first = until_deadline(reader.run(move || hung.recv().is_ok())).await;
        assert_eq!(first.unwrap_err().kind(), io::ErrorKind::TimedOut);
        for _ in 0..3 {
            let started = started.clone();
            let read = until_deadline(reader.run(move || started.fetch_add(1, Ordering::Relaxed))).await;
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(started.load(Ordering::Relaxed), 0);
        release.send(()).unwrap();
        assert_eq!(reader.run(|| 7).await.unwrap(), 7);
    }
}
