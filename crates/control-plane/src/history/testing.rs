//! Publications for tests of what reads the history.

use super::{Began, Change, History, Published};
use pilotfish_config::networking::VirtualService;
use pilotfish_model::{Kind, Object, ObjectKey, ObjectMeta, Update, World, WorldWriter};
use pilotfish_proto::ResourceType;
use pilotfish_xds::{ClientId, Concerned, Lacking, Progress, Types};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Key of a VirtualService.
pub fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::VirtualService, "shop", name)
}

/// A VirtualService of a host, from a file.
pub fn object(name: &str, host: &str) -> Update {
    let spec = VirtualService { hosts: vec![host.to_owned()], ..VirtualService::default() };
    let meta = ObjectMeta { origin: "routes.yaml:1".into(), generation: 3, ..ObjectMeta::of(key(name)) };
    Update::Object(Object::new(meta, spec))
}

/// Publications as the control loop makes them, and their history.
#[derive(Default)]
pub struct Case {
    writer: WorldWriter,
    /// History that a test fills.
    pub history: History,
    before: Arc<World>,
}

/// Time of a publication.
pub fn at(revision: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(100 * revision)
}

impl Case {
    /// Publications with a history that keeps that many bytes.
    pub fn keeping(budget: usize) -> Self {
        Self { history: History::new(budget), ..Self::default() }
    }

    /// Publishes a change that concerns these clients by their clusters. Returns it.
    pub fn publish(&mut self, updates: Vec<Update>, concerned: &[u64]) -> Arc<Change> {
        self.note(updates, concerned);
        self.history.recent().remove(0)
    }

    /// Publishes a change that nothing reads yet.
    pub fn note(&mut self, updates: Vec<Update>, concerned: &[u64]) {
        let types = Types::from(ResourceType::Cluster);
        let concerned = concerned.iter().map(|id| Concerned { client: ClientId(*id), types });
        self.note_by(updates, concerned.collect());
    }

    /// Publishes a change that concerns each client by a type. Returns it.
    pub fn publish_by(&mut self, updates: Vec<Update>, concerned: &[(u64, ResourceType)]) -> Arc<Change> {
        let one = |(id, ty): &(u64, ResourceType)| Concerned { client: ClientId(*id), types: (*ty).into() };
        self.note_by(updates, concerned.iter().map(one).collect());
        self.history.recent().remove(0)
    }

    fn note_by(&mut self, updates: Vec<Update>, concerned: Vec<Concerned>) {
        updates.into_iter().for_each(|update| self.writer.apply(update));
        let (world, changes) = self.writer.publish().expect("an update that changes the world");
        let revision = world.revision();
        let before = std::mem::replace(&mut self.before, world.clone());
        let before_that = Began { received: at(revision), computing: at(revision) };
        let published =
            Published { revision, at: at(revision), before_that, before, world, changes, concerned };
        self.history.note(published);
    }
}

/// Progress of a client, which lacks clusters after revision `behind`, and acknowledged something `acked`
/// seconds after a publication.
pub fn progress(client: u64, concerned: u64, behind: Option<u64>, acked: f64) -> Progress {
    let acked_at = Some(at(concerned) + Duration::from_secs_f64(acked));
    let lacking = |after| (ResourceType::Cluster, Some(Lacking { after, until: u64::MAX, refused: false }));
    let lacking = behind.map(lacking).into_iter().collect();
    Progress { client: ClientId(client), lacking, acked_at, refuses: false }
}

/// A client that refuses a response of a type.
pub fn refuses(client: u64, ty: ResourceType, after: u64, until: u64) -> Progress {
    let lacking = [(ty, Some(Lacking { after, until, refused: true }))].into_iter().collect();
    Progress { client: ClientId(client), lacking, acked_at: None, refuses: true }
}
