//! Requests of `istioctl` over xDS: the types `istio.io/debug`, `istio.io/debug/syncz`,
//! `istio.io/debug/config_dump` and `istio.io/connections`.
//!
//! ```text
//! stream ─ access, type ─▶ Question ─ queue ─▶ answering task: debug pages, states of connections
//!    ▲                                              │
//!    └──────────────── finished collection ◀────────┘
//! ```
//!
//! Clients with access to debug pages may ask. Types that are not served end the stream at once, because
//! `istioctl` would wait for an answer.

mod answer;
mod messages;

pub use answer::{Answerer, Budget};

use parking_lot::Mutex;
use pilotfish_control_plane::resources::{ClientState, ConnectHook, ConnectingClient, is_local};
use pilotfish_kube_writer::lease::replica_name;
use pilotfish_xds::{Collection, CollectionState, ConnectError, Held, PeerInfo};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc;

/// Prefix of the types of tools.
const OF_TOOLS: &str = "istio.io/";
/// Capacity of the queue of questions.
const WAITING: usize = 32;

/// Subject of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Debug page: `syncz`, or `config_dump?proxyID=web-0.shop`.
    Page(String),
    /// States of all connections.
    Syncz,
    /// Resources of one proxy.
    ConfigDump(String),
    /// Nodes of all connections.
    Connections,
}

/// Question with the cell for its answer.
pub struct Question {
    pub(crate) subject: Subject,
    pub(crate) answer: Answer,
}

/// Cell of an answer; empty until the answer is made.
pub(crate) type Answer = Arc<OnceLock<Made>>;

/// Answer with its part of the memory budget.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) collection: Collection,
    pub(crate) held: Held,
}

/// Queue of questions from streams.
pub struct Questions {
    /// True if clients on other machines may ask.
    from_anywhere: bool,
    /// Identifier of this replica, as `istioctl` reads it.
    control_plane: String,
    queue: mpsc::Sender<Question>,
}

/// Receiving half, for [`Answerer`].
pub type Queue = mpsc::Receiver<Question>;

/// State of a client: its open questions by type.
struct Asker {
    queue: mpsc::Sender<Question>,
    allowed: Result<(), ConnectError>,
    asked: Mutex<BTreeMap<String, Answer>>,
}

impl Questions {
    /// Returns a queue. With `from_anywhere`, clients on other machines may ask, too.
    pub fn new(from_anywhere: bool) -> (Self, Queue) {
        let (queue, questions) = mpsc::channel(WAITING);
        let control_plane = control_plane(&replica_name(), env!("CARGO_PKG_VERSION"));
        (Self { from_anywhere, control_plane, queue }, questions)
    }

    /// Checks a connecting client's access.
    fn asker(&self, peer: &PeerInfo) -> Asker {
        let refusal = || {
            ConnectError::PermissionDenied(
                "debug types are served to clients on this machine only, and not through proxies: use \
                 kubectl port-forward, or --allow-remote-debug"
                    .into(),
            )
        };
        let allowed = if is_local(peer) || self.from_anywhere { Ok(()) } else { Err(refusal()) };
        Asker { queue: self.queue.clone(), allowed, asked: Mutex::default() }
    }
}

impl ConnectHook for Questions {
    fn connect(
        &self,
        client: &mut ConnectingClient<'_>,
    ) -> Result<Option<Box<dyn ClientState>>, ConnectError> {
        Ok(Some(Box::new(self.asker(client.peer))))
    }

    fn control_plane(&self, type_url: &str) -> Option<&str> {
        type_url.starts_with(OF_TOOLS).then_some(&self.control_plane)
    }
}

impl ClientState for Asker {
    /// Queues a question, if the type is one of tools.
    fn serves_collection(&self, type_url: &str, names: &[&str]) -> Result<bool, ConnectError> {
        if !type_url.starts_with(OF_TOOLS) {
            return Ok(false);
        }
        self.allowed.clone()?;
        let subject = subject(type_url, names).map_err(ConnectError::InvalidArgument)?;
        let answer = Answer::default();
        // The map stays small, because few types are served.
        self.asked.lock().insert(type_url.to_owned(), answer.clone());
        let busy = |_| ConnectError::Unavailable("too many questions wait for an answer: try again".into());
        self.queue.try_send(Question { subject, answer }).map_err(busy)?;
        Ok(true)
    }

    /// Takes the answer; `None` for types other than those of tools.
    fn collection(&self, type_url: &str) -> Option<CollectionState> {
        if !type_url.starts_with(OF_TOOLS) {
            return None;
        }
        let mut asked = self.asked.lock();
        let Some(made) = asked.get(type_url).and_then(|answer| answer.get().cloned()) else {
            return Some(CollectionState::NotYet);
        };
        asked.remove(type_url);
        Some(CollectionState::Once(made.collection, made.held))
    }
}

/// Returns the identifier of a control plane in istiod's format. `istioctl` asks all replicas, shows them by
/// `ID`, and keeps one answer of each.
fn control_plane(replica: &str, version: &str) -> String {
    serde_json::json!({"Component": "pilotfish", "ID": replica, "Info": {"version": version}}).to_string()
}

/// Parses the type and names of a request.
fn subject(type_url: &str, names: &[&str]) -> Result<Subject, String> {
    match (type_url, names) {
        ("istio.io/debug", [page]) => {
            let path = page.trim_start_matches('/');
            let path = path.strip_prefix("debug/").unwrap_or(path);
            let name = path.split('?').next().unwrap_or_default();
            if pilotfish_admin::ENDPOINTS.iter().any(|(known, _)| *known == name) {
                return Ok(Subject::Page(path.to_owned()));
            }
            let known: Vec<&str> = pilotfish_admin::ENDPOINTS.iter().map(|(name, _)| *name).collect();
            Err(format!("there is no debug page {name:?}; there are {}", known.join(", ")))
        }
        ("istio.io/debug/syncz", _) => Ok(Subject::Syncz),
        ("istio.io/debug/config_dump", [proxy]) => Ok(Subject::ConfigDump((*proxy).to_owned())),
        ("istio.io/connections", _) => Ok(Subject::Connections),
        ("istio.io/debug" | "istio.io/debug/config_dump", names) => {
            Err(format!("{type_url} is asked for with one name, not with {}", names.len()))
        }
        _ => Err(format!("{type_url} is not served")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: &str, from_anywhere: bool, type_url: &str, names: &[&str]) -> Result<bool, ConnectError> {
        let (questions, _queue) = Questions::new(from_anywhere);
        let peer = PeerInfo { address: address.parse().unwrap(), ..PeerInfo::default() };
        questions.asker(&peer).serves_collection(type_url, names)
    }

    #[test]
    fn those_who_may_see_pages_may_ask() {
        for (address, from_anywhere, is_allowed) in [
            ("127.0.0.1:4000", false, true),
            ("[::1]:4000", false, true),
            ("[::ffff:127.0.0.1]:4000", false, true),
            ("10.0.0.1:4000", false, false),
            ("127.0.0.6:4000", false, false),
            ("10.0.0.1:4000", true, true),
        ] {
            let answer = ask(address, from_anywhere, "istio.io/debug/syncz", &[]);
            assert_eq!(answer == Ok(true), is_allowed, "{address} {from_anywhere}: {answer:?}");
            assert_eq!(matches!(answer, Err(ConnectError::PermissionDenied(_))), !is_allowed, "{address}");
        }
        let (questions, _queue) = Questions::new(false);
        let peer = PeerInfo {
            address: "127.0.0.1:4000".parse().unwrap(),
            is_forwarded: true,
            ..PeerInfo::default()
        };
        let refused = questions.asker(&peer).serves_collection("istio.io/debug/syncz", &[]);
        assert!(matches!(refused, Err(ConnectError::PermissionDenied(_))), "{refused:?}");
    }

    #[test]
    fn what_is_not_served_is_said() {
        let answer = |type_url, names: &[&str]| ask("127.0.0.1:1", false, type_url, names);
        assert_eq!(answer("type.googleapis.com/envoy.config.cluster.v3.Cluster", &[]), Ok(false));
        for page in ["config_dump?proxyID=web-0.shop", "/debug/adsz", "debug/adsz"] {
            assert_eq!(answer("istio.io/debug", &[page]), Ok(true), "{page}");
        }
        for (type_url, names, message) in [
            ("istio.io/debug", &["mesh"][..], "there is no debug page \"mesh\"; there are adsz"),
            ("istio.io/debug", &[], "asked for with one name, not with 0"),
            ("istio.io/debug/config_dump", &["a", "b"], "asked for with one name, not with 2"),
            ("istio.io/debug/other", &[], "istio.io/debug/other is not served"),
        ] {
            let Err(ConnectError::InvalidArgument(text)) = answer(type_url, names) else {
                panic!("{type_url} {names:?} is refused")
            };
            assert!(text.contains(message), "{text}");
        }
    }

    #[test]
    fn questions_that_wait_are_limited() {
        let (questions, _queue) = Questions::new(true);
        let ask = || questions.asker(&PeerInfo::default()).serves_collection("istio.io/debug/syncz", &[]);
        assert!((0..WAITING).all(|_| ask() == Ok(true)));
        assert!(matches!(ask(), Err(ConnectError::Unavailable(_))));
    }

    /// An answer may be as large as all that is known.
    #[test]
    fn an_answer_is_handed_over_once_and_not_kept() {
        let (questions, mut queue) = Questions::new(true);
        let asker = questions.asker(&PeerInfo::default());
        let debug = "istio.io/debug/syncz";
        assert_eq!(asker.serves_collection(debug, &[]), Ok(true));
        let state = |type_url| asker.collection(type_url);
        assert!(matches!(state(debug), Some(CollectionState::NotYet)));
        let Question { answer, .. } = queue.try_recv().unwrap();
        let held = Arc::new(());
        answer.set(Made { collection: Collection::new(), held: held.clone() }).unwrap();
        drop(answer);
        let taken = state(debug);
        assert!(matches!(taken, Some(CollectionState::Once(..))) && Arc::strong_count(&held) == 2);
        drop(taken);
        assert_eq!(Arc::strong_count(&held), 1);
        assert!(matches!(state(debug), Some(CollectionState::NotYet)), "it would have to be asked again");
        assert!(state("networking.istio.io/v1/Sidecar").is_none());
    }
}
