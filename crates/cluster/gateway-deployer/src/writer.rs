//! Application of the planned objects, while this replica leads.

use crate::object::{ManagedKind, Manifest, ObjectId};
use crate::observe::{Observation, observe, reduced};
use crate::planner::{Desired, Job, Planner, is_owner};
use crate::render::{GatewayTemplate, RenderError};
use kube::Client;
use pilotfish_config::gateway_api::ManagedGateway;
use pilotfish_config::status::CONTROLLERS;
use pilotfish_kube::request::{BACKOFF, RequestError, until};
use pilotfish_model::ObjectKey;
use pilotfish_runtime::{Backoff, ErrorClass, Jitter};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Field manager of the writes.
pub const FIELD_MANAGER: &str = "pilotfish-gateways";
/// GatewayClass that is created.
pub const CLASS: &str = "pilotfish";

/// Timeout of one request.
const ANSWER: Duration = Duration::from_secs(10);
/// Maximum number of queued observations.
const WAITING: usize = 256;
/// Interval at which objects are rendered again: the authorities in a bootstrap may have changed.
const RENDER_AGAIN: Duration = Duration::from_secs(300);
/// Interval at which objects are rendered again while the authorities are unknown, or the class is missing.
const NOT_READY: Duration = Duration::from_secs(2);
/// Interval of attempts to create the class while the API server does not have the kind.
const CLASS_AGAIN: Duration = Duration::from_secs(60);

/// Gateways by key.
pub type DesiredGateways = Arc<BTreeMap<ObjectKey, Arc<ManagedGateway>>>;

/// Reason why the objects of a Gateway were not applied.
#[derive(Debug, thiserror::Error)]
enum ApplyError {
    /// An object of that name belongs to somebody else.
    #[error(
        "{0} exists and is not owned by the Gateway; nothing is made for it (hint: delete or rename one, \
             or name the Service in spec.addresses)"
    )]
    NotOwned(ObjectId),
    /// Another field manager owns a field.
    #[error("{id}: fields are owned by another field manager: {error}")]
    Conflict { id: ObjectId, error: RequestError },
    #[error("{id}: {error}")]
    Request { id: ObjectId, error: RequestError },
    /// This replica does not lead any more.
    #[error("this replica does not lead any more")]
    NotLeading,
}

/// Function for the end of the current leadership; `None` if this replica does not lead.
pub type LeadsUntil = Arc<dyn Fn() -> Option<Instant> + Send + Sync>;

/// Rendered objects of a Gateway, with what they were made of.
struct Rendered {
    gateway: Arc<ManagedGateway>,
    bootstrap: Value,
    desired: Arc<Desired>,
}

/// Applies the objects of Gateways.
pub struct GatewayWriter {
    client: Client,
    template: Arc<GatewayTemplate>,
    leads_until: LeadsUntil,
    planner: Planner,
    gateways: DesiredGateways,
    rendered: BTreeMap<ObjectKey, Rendered>,
    render_at: Option<Instant>,
    /// Time of the next attempt to create the class; `None` if that is done, or not wanted.
    class_at: Option<Instant>,
    backoff: Backoff,
    /// Problems of Gateways that were logged.
    problems: BTreeMap<ObjectKey, String>,
}

impl GatewayWriter {
    /// Creates a writer for the cluster of that client. `makes_class` also creates the GatewayClass.
    #[must_use]
    pub fn new(
        client: Client,
        template: Arc<GatewayTemplate>,
        leads_until: LeadsUntil,
        makes_class: bool,
    ) -> Self {
        Self {
            client,
            template,
            leads_until,
            planner: Planner::default(),
            gateways: Arc::default(),
            rendered: BTreeMap::new(),
            render_at: None,
            class_at: makes_class.then(Instant::now),
            backoff: Backoff::new(BACKOFF, Jitter::default()),
            problems: BTreeMap::new(),
        }
    }

    /// Applies objects until the sender is dropped. The caller drops this future when the leadership ends.
    pub async fn run(mut self, mut desired: watch::Receiver<Option<DesiredGateways>>) {
        let (sender, mut observations) = mpsc::channel(WAITING);
        let mut watches = JoinSet::new();
        for kind in ManagedKind::ALL {
            watches.spawn(observe(self.client.clone(), kind, sender.clone()));
        }
        desired.mark_changed();
        loop {
            let now = Instant::now();
            let due = [self.planner.next(), self.render_at, self.class_at].into_iter().flatten().min();
            tokio::select! {
                biased;
                changed = desired.changed() => match changed {
                    Ok(()) => {
                        if let Some(gateways) = desired.borrow_and_update().clone() {
                            self.gateways = gateways;
                            self.render();
                        }
                    }
                    Err(_) => return,
                },
                Some(observation) = observations.recv() => self.observed(observation),
                () = tokio::time::sleep_until(due.unwrap_or(now)), if due.is_some() => self.work().await,
            }
        }
    }

    fn observed(&mut self, observation: Observation) {
        let now = Instant::now();
        match observation {
            Observation::Listed(kind, objects) => self.planner.listed(kind, objects, now),
            Observation::Changed(id, object) => self.planner.observed(id, object, now),
        }
    }

    /// Does what is due.
    async fn work(&mut self) {
        let now = Instant::now();
        if self.render_at.is_some_and(|at| at <= now) {
            self.render();
        }
        if self.class_at.is_some_and(|at| at <= now) {
            self.make_class().await;
        }
        if let Some(job) = self.planner.take(Instant::now()) {
            let result = self.apply(&job).await;
            self.ended(&job, result);
        }
    }

    /// Renders the objects of all Gateways. A Gateway whose objects cannot be made keeps what it has.
    fn render(&mut self) {
        let mut all = BTreeMap::new();
        let mut last = std::mem::take(&mut self.rendered);
        let mut again = RENDER_AGAIN;
        for (key, gateway) in self.gateways.clone().iter() {
            match rendered(&self.template, gateway, last.remove(key)) {
                Ok(rendered) => {
                    all.insert(key.clone(), rendered.desired.clone());
                    self.rendered.insert(key.clone(), rendered);
                }
                Err(RenderError::NoAuthorities) => again = NOT_READY,
                Err(error) => self.problem(key, error.to_string()),
            }
        }
        let gateways = &self.gateways;
        self.problems.retain(|key, _| gateways.contains_key(key));
        let now = Instant::now();
        self.planner.set_desired(all, now);
        self.render_at = Some(now + again);
    }

    /// Applies the objects of a Gateway, unless one of them belongs to somebody else.
    async fn apply(&self, job: &Job) -> Result<BTreeMap<ObjectId, Value>, ApplyError> {
        for manifest in &job.desired.manifests {
            if !job.owned.contains(&manifest.id) {
                self.check_owner(&manifest.id, &job.desired.uid).await?;
            }
        }
        let mut stored = BTreeMap::new();
        for manifest in &job.desired.manifests {
            stored.insert(manifest.id.clone(), self.apply_one(manifest).await?);
        }
        for id in &job.superfluous {
            let request = http::Request::delete(id.path());
            match self.send(id, request, Vec::new()).await {
                Ok(_) => {
                    tracing::info!(object = %id, gateway = %job.key, "deleted: the Gateway asks for none")
                }
                Err(ApplyError::Request { error, .. }) if error.class == ErrorClass::Gone => {}
                Err(error) => return Err(error),
            }
        }
        Ok(stored)
    }

    /// Fails for an object that exists and is not owned by the Gateway.
    async fn check_owner(&self, id: &ObjectId, uid: &str) -> Result<(), ApplyError> {
        match self.send(id, http::Request::get(id.path()), Vec::new()).await {
            Ok(object) if is_owner(uid, &object) => Ok(()),
            Ok(_) => Err(ApplyError::NotOwned(id.clone())),
            Err(ApplyError::Request { error, .. }) if error.class == ErrorClass::Gone => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Applies an object. Fields that were changed by hand are taken back, those that another manager applies
    /// are not.
    async fn apply_one(&self, manifest: &Manifest) -> Result<Value, ApplyError> {
        let conflict = match self.patch(manifest, false).await {
            Err(conflict @ ApplyError::Conflict { .. }) => conflict,
            other => return other,
        };
        let object = self.send(&manifest.id, http::Request::get(manifest.id.path()), Vec::new()).await?;
        if is_applied_by_others(&object) {
            return Err(conflict);
        }
        tracing::info!(object = %manifest.id, reason = %conflict, "taking back fields that were changed by hand");
        self.patch(manifest, true).await
    }

    async fn patch(&self, manifest: &Manifest, force: bool) -> Result<Value, ApplyError> {
        let path = format!("{}?fieldManager={FIELD_MANAGER}&force={force}", manifest.id.path());
        let request =
            http::Request::patch(path).header(http::header::CONTENT_TYPE, "application/apply-patch+yaml");
        let body = manifest.body.to_string().into_bytes();
        self.send(&manifest.id, request, body).await.map(reduced)
    }

    async fn send(
        &self,
        id: &ObjectId,
        request: http::request::Builder,
        body: Vec<u8>,
    ) -> Result<Value, ApplyError> {
        // Checked before each request: only the current leader may write.
        let leads = (self.leads_until)().ok_or(ApplyError::NotLeading)?;
        let failed = |error: RequestError| match error.class {
            ErrorClass::Conflict => ApplyError::Conflict { id: id.clone(), error },
            _ => ApplyError::Request { id: id.clone(), error },
        };
        let request = request.body(body).map_err(|error| failed(error.into()))?;
        let limit = leads.min(Instant::now() + ANSWER);
        until(limit, self.client.request::<Value>(request)).await.map_err(failed)
    }

    fn ended(&mut self, job: &Job, result: Result<BTreeMap<ObjectId, Value>, ApplyError>) {
        let now = Instant::now();
        match result {
            Ok(stored) => {
                self.backoff.reset();
                tracing::info!(gateway = %job.key, objects = stored.len(), "applied the objects of a Gateway");
                if self.problems.remove(&job.key).is_some() {
                    tracing::info!(gateway = %job.key, "the objects of a Gateway can be made again");
                }
                self.planner.ended(job, Some(stored), now);
            }
            Err(error) => {
                if let ApplyError::Request { error, .. } = &error
                    && error.class == ErrorClass::Transient
                {
                    self.planner.pause(now + self.backoff.wait_at_least(error.retry_after));
                }
                self.problem(&job.key, error.to_string());
                self.planner.ended(job, None, now);
            }
        }
        tracing::debug!(settled = self.planner.settled(), "Gateways whose objects are as desired");
    }

    /// Logs a problem of a Gateway once.
    fn problem(&mut self, key: &ObjectKey, reason: String) {
        if self.problems.get(key) != Some(&reason) {
            tracing::warn!(gateway = %key, reason, "cannot make the Deployment and Service of a Gateway; retrying");
            self.problems.insert(key.clone(), reason);
        }
    }

    /// Creates the class, unless there is one of the name.
    async fn make_class(&mut self) {
        self.class_at = Some(Instant::now() + NOT_READY);
        let Some(leads) = (self.leads_until)() else { return };
        let request = http::Request::post(format!(
            "/apis/gateway.networking.k8s.io/v1/gatewayclasses?fieldManager={FIELD_MANAGER}"
        ));
        let request = request.header(http::header::CONTENT_TYPE, "application/json");
        let limit = leads.min(Instant::now() + ANSWER);
        let answer = match request.body(class().to_string().into_bytes()) {
            Ok(request) => until(limit, self.client.request::<Value>(request)).await.map(drop),
            Err(error) => Err(error.into()),
        };
        self.class_at = match answer {
            Ok(()) => {
                tracing::info!(class = CLASS, "created the GatewayClass");
                None
            }
            Err(error) if error.class == ErrorClass::Conflict => None,
            Err(error) if error.class == ErrorClass::Transient => {
                Some(Instant::now() + self.backoff.wait_at_least(error.retry_after))
            }
            // Without the definition of the kind, there may be one later.
            Err(error) if error.class == ErrorClass::Gone => Some(Instant::now() + CLASS_AGAIN),
            Err(error) => {
                tracing::warn!(class = CLASS, reason = %error, "cannot create the GatewayClass");
                None
            }
        };
    }
}

/// Renders the objects of a Gateway, unless the last ones were made of the same.
fn rendered(
    template: &GatewayTemplate,
    gateway: &Arc<ManagedGateway>,
    last: Option<Rendered>,
) -> Result<Rendered, RenderError> {
    let bootstrap = template.bootstrap_of(gateway)?;
    if let Some(last) = last
        && last.gateway == *gateway
        && last.bootstrap == bootstrap
    {
        return Ok(last);
    }
    let manifests = template.objects(gateway, &bootstrap)?;
    let desired = Arc::new(Desired { uid: gateway.uid.clone(), manifests });
    Ok(Rendered { gateway: gateway.clone(), bootstrap, desired })
}

/// True if another manager applies fields of an object, in contrast to edits and patches by hand.
fn is_applied_by_others(object: &Value) -> bool {
    let managers = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    managers
        .into_iter()
        .flatten()
        .any(|entry| entry["operation"] == "Apply" && entry["manager"] != FIELD_MANAGER)
}

fn class() -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": CLASS},
        "spec": {
            "controllerName": CONTROLLERS[1],
            "description": "Gateways that Pilotfish deploys and serves",
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{DEFAULT_TEMPLATE, GatewayBootstrap, example};
    use pilotfish_model::Revision;

    #[test]
    fn objects_are_rendered_again_only_if_what_they_are_made_of_changes() {
        let template = |version: u32| {
            let bootstrap: GatewayBootstrap = Arc::new(move |_| Some(json!({"version": version})));
            GatewayTemplate::new(DEFAULT_TEMPLATE, BTreeMap::new(), bootstrap, &Revision::default()).unwrap()
        };
        let first = rendered(&template(1), &Arc::new(example()), None).unwrap();
        let before = first.desired.clone();
        let same = rendered(&template(1), &Arc::new(example()), Some(first)).unwrap();
        assert!(Arc::ptr_eq(&same.desired, &before));
        let gateway = Arc::new(ManagedGateway { service_type: Some("NodePort".into()), ..example() });
        let changed = rendered(&template(1), &gateway, Some(same)).unwrap();
        assert_ne!(changed.desired, before);
        let before = changed.desired.clone();
        let changed = rendered(&template(2), &gateway, Some(changed)).unwrap();
        assert_ne!(changed.desired, before);
    }

    #[test]
    fn fields_are_taken_back_unless_another_manager_applies() {
        let object = |entries: Value| json!({"metadata": {"managedFields": entries}});
        let entry = |manager: &str, operation: &str| json!({"manager": manager, "operation": operation});
        for (entries, expected) in [
            (json!([]), false),
            (json!([entry(FIELD_MANAGER, "Apply")]), false),
            (json!([entry(FIELD_MANAGER, "Apply"), entry("kubectl-edit", "Update")]), false),
            (json!([entry(FIELD_MANAGER, "Apply"), entry("argocd", "Apply")]), true),
        ] {
            assert_eq!(is_applied_by_others(&object(entries.clone())), expected, "{entries}");
        }
        assert!(!is_applied_by_others(&json!({})));
    }
}
