//! Application of the planned objects, while this replica leads.

use crate::object::{FIELD_MANAGER, ManagedKind, Manifest, ObjectId};
use crate::observe::{Observation, observe, reduced};
use crate::planner::{Desired, Job, Planner, is_owner};
use crate::render::{GatewayTemplate, RenderError};
use crate::takeover;
use kube::Client;
use pilotfish_config::gateway_api::ManagedGateway;
use pilotfish_config::status::CONTROLLERS;
use pilotfish_kube::request::{BACKOFF, RequestError, until};
use pilotfish_model::ObjectKey;
use pilotfish_runtime::{Backoff, ErrorClass, Jitter};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// GatewayClasses that can be created, by the position of their controller in [`CONTROLLERS`].
const CLASSES: [&str; 2] = ["istio", "pilotfish"];

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
    /// An istiod applies an object, and nothing says that it has given up the Gateway.
    #[error(
        "{0} is applied by an istiod; nothing is changed (hint: when no istiod runs any more, \
             --gateway-istio-class on takes it over)"
    )]
    OfIstiod(ObjectId),
    /// Another field manager owns a field.
    #[error("{id}: fields are owned by another field manager: {error}")]
    Conflict { id: ObjectId, error: RequestError },
    #[error("{id}: {error}")]
    Request { id: ObjectId, error: RequestError },
    /// This replica does not lead any more.
    #[error("this replica does not lead any more")]
    NotLeading,
}

/// Receiver of the problems of Gateways, complete after each change.
pub type ReportProblems = Arc<dyn Fn(&BTreeMap<ObjectKey, String>) + Send + Sync>;

/// Function for the end of the current leadership; `None` if this replica does not lead.
pub type LeadsUntil = Arc<dyn Fn() -> Option<Instant> + Send + Sync>;

/// GatewayClasses of the writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    /// Creates the class `pilotfish`.
    pub pilotfish: bool,
    /// Creates the class `istio`, and takes over what an istiod made for its Gateways.
    pub istio: bool,
}

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
    /// True if objects that an istiod made for Gateways of its own controller are taken over.
    replaces_istiod: bool,
    /// Names and controllers of classes that are still to be created.
    classes: Vec<(&'static str, &'static str)>,
    /// Time of the next attempt to create a class.
    class_at: Option<Instant>,
    backoff: Backoff,
    /// Current problems of Gateways.
    problems: BTreeMap<ObjectKey, String>,
    report: ReportProblems,
}

impl GatewayWriter {
    /// Creates a writer for the cluster of that client.
    #[must_use]
    pub fn new(
        client: Client,
        template: Arc<GatewayTemplate>,
        leads_until: LeadsUntil,
        classes: Classes,
        report: ReportProblems,
    ) -> Self {
        let wanted = CLASSES.into_iter().zip(CONTROLLERS).zip([classes.istio, classes.pilotfish]);
        Self {
            client,
            template,
            leads_until,
            planner: Planner::default(),
            gateways: Arc::default(),
            rendered: BTreeMap::new(),
            render_at: None,
            replaces_istiod: classes.istio,
            classes: wanted.filter(|(_, is_wanted)| *is_wanted).map(|(class, _)| class).collect(),
            class_at: Some(Instant::now()),
            backoff: Backoff::new(BACKOFF, Jitter::default()),
            problems: BTreeMap::new(),
            report,
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
        self.drop_problems();
    }

    /// Does what is due.
    async fn work(&mut self) {
        let now = Instant::now();
        if self.render_at.is_some_and(|at| at <= now) {
            self.render();
        }
        if self.class_at.is_some_and(|at| at <= now) {
            self.make_classes().await;
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
        let now = Instant::now();
        self.planner.set_desired(all, now);
        self.render_at = Some(now + again);
        self.drop_problems();
    }

    /// Drops the problems of deleted Gateways, and of those whose objects are as desired without an
    /// application: somebody undid the change that could not be taken back.
    fn drop_problems(&mut self) {
        let (gateways, planner, known) = (&self.gateways, &self.planner, self.problems.len());
        self.problems.retain(|key, _| gateways.contains_key(key) && !planner.is_settled(key));
        if self.problems.len() != known {
            (self.report)(&self.problems);
        }
    }

    /// Applies the objects of a Gateway, unless one of them belongs to somebody else.
    async fn apply(&self, job: &Job) -> Result<BTreeMap<ObjectId, Value>, ApplyError> {
        let mut existing = job.owned.clone();
        for id in job.desired.manifests.iter().map(|manifest| &manifest.id) {
            if !existing.contains_key(id)
                && let Some(object) = self.owned_object(id, &job.desired.uid).await?
            {
                existing.insert(id.clone(), object);
            }
        }
        let gateway = self.gateways.get(&job.key);
        let takes_over =
            self.replaces_istiod || gateway.is_some_and(|gateway| gateway.controller == CONTROLLERS[1]);
        let of_istiod = existing.iter().find(|(_, object)| takeover::is_applied_by_istiod(object));
        if let Some((id, _)) = of_istiod.filter(|_| !takes_over) {
            return Err(ApplyError::OfIstiod(id.clone()));
        }
        let mut stored = BTreeMap::new();
        for manifest in &job.desired.manifests {
            let object = existing.get(&manifest.id);
            let by_istiod = object.is_some_and(takeover::is_applied_by_istiod);
            let manifest = match object {
                Some(object) => self.adopted(manifest, object, !job.desired.replaces_proxy).await?,
                None => Cow::Borrowed(manifest),
            };
            stored.insert(manifest.id.clone(), self.apply_one(&manifest, by_istiod).await?);
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

    /// Returns the stored object. Fails for one that is not owned by the Gateway.
    async fn owned_object(&self, id: &ObjectId, uid: &str) -> Result<Option<Value>, ApplyError> {
        match self.send(id, http::Request::get(id.path()), Vec::new()).await {
            Ok(object) if is_owner(uid, &object) => Ok(Some(object)),
            Ok(_) => Err(ApplyError::NotOwned(id.clone())),
            Err(ApplyError::Request { error, .. }) if error.class == ErrorClass::Gone => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns what to apply to a stored object, after the fields of an istiod have been moved to Pilotfish.
    async fn adopted<'a>(
        &self,
        manifest: &'a Manifest,
        stored: &Value,
        keeps_pods: bool,
    ) -> Result<Cow<'a, Manifest>, ApplyError> {
        let adopted = takeover::with_selector(manifest, stored);
        if !takeover::is_applied_by_istiod(stored) {
            return Ok(adopted);
        }
        let keeps_pods = match self.take_over(&adopted, keeps_pods).await {
            // Somebody changed the object, such as its status, between the two requests.
            Err(ApplyError::Request { error, .. }) if error.class == ErrorClass::Conflict => {
                self.take_over(&adopted, keeps_pods).await?
            }
            other => other?,
        };
        Ok(if keeps_pods { Cow::Owned(takeover::without_pods(adopted.into_owned())) } else { adopted })
    }

    /// Moves the fields of an istiod to Pilotfish. Returns true if the Pods keep the istiod's template.
    async fn take_over(&self, manifest: &Manifest, keeps_pods: bool) -> Result<bool, ApplyError> {
        let id = &manifest.id;
        let object = self.send(id, http::Request::get(id.path()), Vec::new()).await?;
        let keeps_pods = keeps_pods && takeover::has_pods_of_istiod(&object);
        let keeps_replicas = manifest.body.pointer("/spec/replicas").is_none();
        let Some(fields) = takeover::moved(&object, keeps_pods, keeps_replicas) else {
            return Ok(keeps_pods);
        };
        // The version makes the API server refuse it if somebody changed the object meanwhile.
        let version = &object["metadata"]["resourceVersion"];
        let body = json!({"metadata": {"resourceVersion": version, "managedFields": fields}});
        let request = http::Request::patch(format!("{}?fieldManager={FIELD_MANAGER}", id.path()));
        let request = request.header(http::header::CONTENT_TYPE, "application/merge-patch+json");
        match self.send(id, request, body.to_string().into_bytes()).await {
            Ok(_) => {
                tracing::info!(object = %id, keeps_pods, "took over an object that an istiod made");
                Ok(keeps_pods)
            }
            // It is about the version, not about fields.
            Err(ApplyError::Conflict { id, error }) => Err(ApplyError::Request { id, error }),
            Err(error) => Err(error),
        }
    }

    /// Applies an object. Fields that were changed by hand are taken back, those that another manager applies
    /// are not, except from an istiod whose object is taken over.
    async fn apply_one(&self, manifest: &Manifest, by_istiod: bool) -> Result<Value, ApplyError> {
        let conflict = match self.patch(manifest, false).await {
            Err(conflict @ ApplyError::Conflict { .. }) => conflict,
            other => return other,
        };
        let object = self.send(&manifest.id, http::Request::get(manifest.id.path()), Vec::new()).await?;
        if is_applied_by_others(&object, by_istiod) {
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
                    (self.report)(&self.problems);
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

    /// Reports a problem of a Gateway once.
    fn problem(&mut self, key: &ObjectKey, reason: String) {
        if self.problems.get(key) != Some(&reason) {
            self.problems.insert(key.clone(), reason);
            (self.report)(&self.problems);
        }
    }

    /// Creates the classes, unless there are some of these names.
    async fn make_classes(&mut self) {
        self.class_at = None;
        for class in std::mem::take(&mut self.classes) {
            if let Some(pause) = self.make_class(class).await {
                self.classes.push(class);
                self.class_at = self.class_at.max(Some(Instant::now() + pause));
            }
        }
    }

    /// Creates a class, unless there is one of the name. Returns the pause before another attempt.
    async fn make_class(&mut self, (name, controller): (&str, &str)) -> Option<Duration> {
        let Some(leads) = (self.leads_until)() else { return Some(NOT_READY) };
        let request = http::Request::post(format!(
            "/apis/gateway.networking.k8s.io/v1/gatewayclasses?fieldManager={FIELD_MANAGER}"
        ));
        let request = request.header(http::header::CONTENT_TYPE, "application/json");
        let limit = leads.min(Instant::now() + ANSWER);
        let answer = match request.body(class(name, controller).to_string().into_bytes()) {
            Ok(request) => until(limit, self.client.request::<Value>(request)).await.map(drop),
            Err(error) => Err(error.into()),
        };
        match answer {
            Ok(()) => {
                tracing::info!(class = name, "created the GatewayClass");
                None
            }
            Err(error) if error.class == ErrorClass::Conflict => None,
            Err(error) if error.class == ErrorClass::Transient => {
                Some(self.backoff.wait_at_least(error.retry_after))
            }
            // Without the definition of the kind, there may be one later.
            Err(error) if error.class == ErrorClass::Gone => Some(CLASS_AGAIN),
            Err(error) => {
                tracing::warn!(class = name, reason = %error, "cannot create the GatewayClass");
                None
            }
        }
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
    let desired =
        Arc::new(Desired { uid: gateway.uid.clone(), replaces_proxy: gateway.replaces_proxy, manifests });
    Ok(Rendered { gateway: gateway.clone(), bootstrap, desired })
}

/// True if another manager applies fields of an object, in contrast to edits and patches by hand. An istiod
/// is none where its object is taken over: it applies the Pod template that is kept.
fn is_applied_by_others(object: &Value, by_istiod: bool) -> bool {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let is_known = |manager: &Value| *manager == FIELD_MANAGER || (by_istiod && *manager == takeover::ISTIOD);
    entries.into_iter().flatten().any(|entry| entry["operation"] == "Apply" && !is_known(&entry["manager"]))
}

fn class(name: &str, controller: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": name},
        "spec": {
            "controllerName": controller,
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
        let own = entry(FIELD_MANAGER, "Apply");
        for (entries, by_istiod, expected) in [
            (json!([]), false, false),
            (json!([own]), false, false),
            (json!([own, entry("kubectl-edit", "Update")]), false, false),
            (json!([own, entry("argocd", "Apply")]), false, true),
            (json!([own, entry("argocd", "Apply")]), true, true),
            (json!([own, entry(takeover::ISTIOD, "Apply")]), true, false),
            (json!([own, entry(takeover::ISTIOD, "Apply")]), false, true),
        ] {
            assert_eq!(is_applied_by_others(&object(entries.clone()), by_istiod), expected, "{entries}");
        }
        assert!(!is_applied_by_others(&json!({}), false));
    }
}
