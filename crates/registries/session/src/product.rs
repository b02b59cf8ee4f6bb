//! Consecutive sessions with a product.

use crate::{CatalogWriter, SessionError};
use pilotfish_model::ShardKey;
use pilotfish_registry::{Catalog, CatalogOptions, LiveSource, RegistrySender};
use pilotfish_runtime::{Backoff, BackoffPolicy, Jitter};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::Instrument;

/// Backoff after a failed session.
const RECONNECT: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(200), Duration::from_secs(15));
/// The first sessions of processes that start at once are spread over this time.
const START_SPREAD: Duration = Duration::from_millis(100);

/// A product that a registry reads, such as etcd or Consul.
pub trait Product: Send + 'static {
    /// Runs one session: connects, reads everything, publishes it with one [`CatalogWriter::replace`], then
    /// follows changes with [`CatalogWriter::apply`] until something fails.
    ///
    /// The future may be dropped at any await: the guard against mass change ends a session to get its second
    /// answer, the full read of the next session. A session must not reuse revisions from an earlier one.
    ///
    /// # Errors
    /// When the product cannot be read any more. Published services stay in force, and a new session starts.
    fn session<'a>(
        &'a mut self,
        catalog: &'a mut CatalogWriter,
    ) -> impl Future<Output = Result<Infallible, SessionError>> + Send + 'a;
}

/// Returns the live source of a product, which runs sessions for ever.
#[must_use]
pub fn live<P: Product>(product: P, shard: ShardKey, options: CatalogOptions) -> Box<dyn LiveSource> {
    Box::new(Live { product, catalog: Catalog::new(shard, options), jitter: Jitter::default() })
}

struct Live<P> {
    product: P,
    catalog: Catalog,
    jitter: Jitter,
}

impl<P: Product> LiveSource for Live<P> {
    fn run(self: Box<Self>, sender: RegistrySender) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        // Log lines of sessions have `registry=` by this span, at every level.
        let span = tracing::error_span!("session", registry = %self.catalog.shard());
        let sessions = sessions(self.product, CatalogWriter::new(self.catalog, sender), self.jitter);
        Box::pin(sessions.instrument(span))
    }
}

async fn sessions<P: Product>(mut product: P, mut catalog: CatalogWriter, mut jitter: Jitter) {
    sleep(START_SPREAD.mul_f64(jitter.fraction())).await;
    let mut backoff = Backoff::new(RECONNECT, jitter);
    let mut acceptances = catalog.report().losses().acceptances();
    loop {
        let began = Instant::now();
        let held = catalog.begin();
        let end = tokio::select! {
            end = product.session(&mut catalog) => Some(end),
            () = second_answer_due(held, began) => None,
            Ok(()) = acceptances.changed() => {
                catalog.accept();
                None
            }
        };
        if catalog.has_answered() {
            backoff.reset();
        }
        if let Some(Err(error)) = end {
            catalog.end(&error);
            sleep(backoff.wait()).await;
        }
    }
}

/// Waits until an answer that this session held back is due for its second read.
async fn second_answer_due(mut held: watch::Receiver<Option<Instant>>, began: Instant) {
    loop {
        let until = *held.borrow_and_update();
        let changed = held.changed();
        match until {
            // This session was started for the second answer.
            Some(until) if until > began => tokio::select! {
                () = sleep_until(until) => return,
                closed = changed => if closed.is_err() { std::future::pending().await },
            },
            _ => {
                if changed.await.is_err() {
                    std::future::pending().await
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::{Provider, ShardKey};
    use pilotfish_registry::{CatalogInstance, CatalogService, LiveInput, RegistryReceiver, channel};
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    /// What one session does.
    #[derive(Clone)]
    enum Step {
        Services(usize),
        Gone(usize),
        Fail(&'static str),
        Hang,
    }

    struct Script(VecDeque<Vec<Step>>);

    fn services(count: usize) -> Vec<CatalogService> {
        let service = |n| CatalogService {
            instances: vec![CatalogInstance::new("i", "10.0.0.1").with_port(80, None)],
            ..CatalogService::new(format!("s{n}"), format!("s{n}"), "ns")
        };
        (0..count).map(service).collect()
    }

    impl Product for Script {
        async fn session(&mut self, catalog: &mut CatalogWriter) -> Result<Infallible, SessionError> {
            for step in self.0.pop_front().unwrap_or_else(|| vec![Step::Hang]) {
                match step {
                    Step::Services(count) => catalog.replace(services(count)),
                    Step::Gone(n) => catalog.apply(vec![], vec![format!("s{n}").into()]),
                    Step::Fail(reason) => return Err(SessionError::new(reason)),
                    Step::Hang => std::future::pending().await,
                }
            }
            Err(SessionError::new("the script ended"))
        }
    }

    fn start(script: Vec<Vec<Step>>) -> RegistryReceiver {
        run(Script(script.into()))
    }

    fn run(product: impl Product) -> RegistryReceiver {
        let shard = ShardKey::new(Provider::new(2, "test"), "c");
        let (sender, receiver) = channel();
        let source = live(product, shard, CatalogOptions::default());
        tokio::spawn(source.run(sender));
        receiver
    }

    /// Log lines.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    struct Logging;

    impl Product for Logging {
        async fn session(&mut self, catalog: &mut CatalogWriter) -> Result<Infallible, SessionError> {
            tracing::warn!("the product logs");
            catalog.note(&"x".into(), Some("it is unusable".into()));
            catalog.replace(services(1));
            let mut tasks = tokio::task::JoinSet::new();
            tasks.spawn(async { tracing::warn!("a task logs") }.in_current_span());
            tasks.join_all().await;
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_log_line_of_a_session_names_the_registry() {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false);
        let _log = tracing::subscriber::set_default(log.with_max_level(tracing::Level::WARN).finish());
        let mut receiver = run(Logging);
        assert!(next(&mut receiver).await.batch.is_some());
        while lines.0.lock().unwrap().iter().filter(|byte| **byte == b'\n').count() < 3 {
            tokio::task::yield_now().await;
        }
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert!(text.lines().all(|line| line.matches("registry=test/c").count() == 1), "{text}");
    }

    async fn next(receiver: &mut RegistryReceiver) -> LiveInput {
        assert!(receiver.wait().await);
        receiver.take().unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_told_and_the_next_session_ends_it() {
        let mut receiver = start(vec![
            vec![Step::Fail("refused")],
            vec![Step::Services(2), Step::Fail("reset")],
            vec![Step::Services(2), Step::Hang],
        ]);
        let input = next(&mut receiver).await;
        assert_eq!((input.failure, input.synced), (Some("refused".into()), false));
        let input = next(&mut receiver).await;
        assert!(input.batch.is_some_and(|batch| batch.is_complete()) && input.synced);
        assert_eq!(input.failure.as_deref(), Some("reset"));
        let input = next(&mut receiver).await;
        assert!(
            input.batch.is_none() && input.synced && input.failure.is_none(),
            "equal, so only the failure is over"
        );
        let state = receiver.report().state();
        assert_eq!((state.sessions, state.failures), (3, 2));
        assert!(state.last_answer.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_mass_loss_is_believed_when_the_next_session_says_so_too() {
        let mut receiver = start(vec![
            vec![Step::Services(4), Step::Gone(0), Step::Gone(1), Step::Gone(2), Step::Hang],
            vec![Step::Fail("refused")],
            vec![Step::Services(1), Step::Hang],
        ]);
        let input = next(&mut receiver).await;
        assert!(input.synced);
        let before = Instant::now();
        let held = receiver.report().state().held.unwrap();
        assert_eq!(
            (&*held.scope, held.before, held.after),
            ("endpoints", 2, 1),
            "the third of four is one too many"
        );
        let input = next(&mut receiver).await;
        assert_eq!(input.failure.as_deref(), Some("refused"), "a failure is no second answer");
        assert_eq!(before.elapsed().as_secs(), 10, "the guard's wait");
        assert!(receiver.report().state().held.is_some());
        let input = next(&mut receiver).await;
        assert!(input.batch.is_some() && input.failure.is_none());
        let state = receiver.report().state();
        assert_eq!((state.held, state.holds), (None, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn accepted_loss_takes_effect_with_a_new_session_at_once() {
        let mut receiver = start(vec![
            vec![Step::Services(4), Step::Services(0), Step::Hang],
            vec![Step::Services(0), Step::Hang],
        ]);
        assert!(next(&mut receiver).await.synced);
        let before = Instant::now();
        assert_eq!(receiver.report().losses().accept(), 1);
        assert!(next(&mut receiver).await.batch.is_some());
        assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
        assert_eq!(receiver.report().state().held, None);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_grow_until_a_session_answers() {
        let failing = vec![Step::Fail("refused")];
        let mut receiver =
            start([vec![failing; 12], vec![vec![Step::Services(1), Step::Fail("reset")]]].concat());
        let began = Instant::now();
        while next(&mut receiver).await.batch.is_none() {}
        let grown = began.elapsed();
        assert!(grown > Duration::from_secs(60), "{grown:?}");
        let began = Instant::now();
        while receiver.report().state().sessions < 14 {
            tokio::task::yield_now().await;
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        assert!(began.elapsed() < Duration::from_secs(1), "the first failure again: {:?}", began.elapsed());
    }
}
