//! Responses of the validating webhook: the report of `pilotfish validate` for the same object, in the same
//! words.

use crate::review::{Cause, Details, Request, Response, Status};
use pilotfish_config::{ObjectCheck, Problem, read_live};
use pilotfish_model::{Kind, Object, Revision};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::sync::Arc;

/// Maximum number of listed problems of each severity; further ones are counted.
const MOST: usize = 20;

/// Validation of objects before the API server stores them.
#[derive(Clone)]
pub struct Validator {
    checks: Vec<ObjectCheck>,
    analysis: Analysis,
    revision: RevisionNow,
    origin: Arc<str>,
}

/// Analysis of an object's references to others.
pub type Analysis = Arc<dyn Fn(&Object) -> Vec<Problem> + Send + Sync>;

/// Function for the revision whose objects are read, with its current tags.
pub type RevisionNow = Arc<dyn Fn() -> Revision + Send + Sync>;

impl Validator {
    /// Creates a validator with checks in addition to those of the types.
    #[must_use]
    pub fn new(checks: Vec<ObjectCheck>) -> Self {
        let (analysis, revision): (Analysis, RevisionNow) =
            (Arc::new(|_| Vec::new()), Arc::new(Revision::default));
        Self { checks, analysis, revision, origin: "admission".into() }
    }

    /// Sets the revision. Objects of others are accepted.
    #[must_use]
    pub fn with_revision(self, revision: RevisionNow) -> Self {
        Self { revision, ..self }
    }

    /// Adds warnings about the objects' references.
    #[must_use]
    pub fn with_analysis(self, analysis: Analysis) -> Self {
        Self { analysis, ..self }
    }

    /// Answers a review. Unknown kinds are accepted.
    #[must_use]
    pub(crate) fn review(&self, request: &Request<'_>) -> Response {
        match self.problems(request) {
            Some(problems) => answer(request, &problems),
            None => Response::allowed(request.uid.as_str()),
        }
    }

    /// Problems of the object; `None` if it is not checked.
    fn problems(&self, request: &Request<'_>) -> Option<Vec<Problem>> {
        let object = request.object.filter(|_| matches!(request.operation.as_str(), "CREATE" | "UPDATE"))?;
        let kind = Kind::find(&request.kind.group, &request.kind.kind)?;
        let json = object.get().as_bytes();
        // An object in deletion only loses its finalizers: a mistake in it must not block that.
        if is_going(json) {
            return None;
        }
        let read = read_live(kind, &self.origin, json);
        let label = match &read {
            Ok(read) => read.object.meta.revision(),
            Err(refused) => refused.revision.as_deref(),
        };
        if !(self.revision)().reads(kind, label) {
            return None;
        }
        Some(match read {
            Ok(read) => {
                let found = self.checks.iter().flat_map(|check| check(&read.object));
                read.warnings.into_iter().chain(found).chain((self.analysis)(&read.object)).collect()
            }
            Err(refused) => refused.problems,
        })
    }
}

fn is_going(json: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        deletion_timestamp: Option<IgnoredAny>,
    }
    serde_json::from_slice::<Object>(json).is_ok_and(|object| object.metadata.deletion_timestamp.is_some())
}

fn answer(request: &Request<'_>, problems: &[Problem]) -> Response {
    let (errors, doubts): (Vec<_>, Vec<_>) = problems.iter().partition(|problem| problem.is_error());
    let mut response = Response::allowed(request.uid.as_str());
    response.warnings = texts(&doubts);
    if !errors.is_empty() {
        let cause = |problem: &&Problem| Cause {
            reason: "FieldValueInvalid",
            message: Problem { path: Default::default(), ..(*problem).clone() }.to_string(),
            field: problem.path.to_string(),
        };
        response.allowed = false;
        response.status = Some(Status {
            code: 422,
            reason: "Invalid",
            message: texts(&errors).join("\n"),
            details: Details {
                name: request.name.clone(),
                group: request.kind.group.clone(),
                kind: request.kind.kind.clone(),
                causes: errors.iter().take(MOST).map(cause).collect(),
            },
        });
    }
    response
}

/// One line for each problem.
fn texts(problems: &[&Problem]) -> Vec<String> {
    let mut texts: Vec<_> = problems.iter().take(MOST).map(ToString::to_string).collect();
    if let Some(more) = problems.len().checked_sub(MOST).filter(|more| *more > 0) {
        texts.push(format!("and {more} more"));
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::parse;

    fn review(operation: &str, kind: &str, object: &str) -> Response {
        review_of(&Revision::default(), operation, kind, object)
    }

    fn review_of(revision: &Revision, operation: &str, kind: &str, object: &str) -> Response {
        let revision = revision.clone();
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"7","name":"a","operation":"{operation}",
            "kind":{{"group":"networking.istio.io","version":"v1","kind":"{kind}"}},"object":{object}}}}}"#
        );
        let validator = Validator::new(Vec::new()).with_revision(Arc::new(move || revision.clone()));
        validator.review(&parse(body.as_bytes()).unwrap())
    }

    const BAD: &str = r#"{"metadata":{"name":"a","namespace":"n"},"spec":{"hosts":["a"],"http":[{"timeout":"soon","route":[{"destination":{"host":"b"}}]}]}}"#;

    #[test]
    fn a_mistake_is_reported_with_its_field() {
        let response = review("CREATE", "VirtualService", BAD);
        assert!(!response.allowed);
        let status = response.status.unwrap();
        assert!(status.message.starts_with("spec.http[0].timeout: "), "{}", status.message);
        assert_eq!(status.details.causes[0].field, "spec.http[0].timeout");
        assert_eq!((status.details.kind.as_str(), status.details.name.as_str()), ("VirtualService", "a"));
        assert!(!status.details.causes[0].message.contains("http[0]"), "{:?}", status.details);
    }

    #[test]
    fn what_is_not_written_or_not_read_passes() {
        for (operation, kind, object) in [
            ("DELETE", "VirtualService", "null"),
            ("CONNECT", "VirtualService", BAD),
            ("CREATE", "Unknown", BAD),
            ("UPDATE", "VirtualService", "null"),
        ] {
            assert_eq!(review(operation, kind, object), Response::allowed("7"), "{operation} {kind}");
        }
        let going =
            BAD.replace(r#""name":"a","#, r#""name":"a","deletionTimestamp":"2024-05-01T12:00:00Z","#);
        assert!(review("UPDATE", "VirtualService", &going).allowed);
    }

    #[test]
    fn object_of_another_revision_is_allowed() {
        let canary = Revision::named("canary").with_tags(["prod".into()].into());
        let labelled = |label: &str| {
            BAD.replace(r#""name":"a","#, &format!(r#""name":"a","labels":{{"istio.io/rev":"{label}"}},"#))
        };
        for (label, allowed) in [("canary", false), ("prod", false), ("stable", true)] {
            let response = review_of(&canary, "CREATE", "VirtualService", &labelled(label));
            assert_eq!(response.allowed, allowed, "{label}");
            let unnamed = review("CREATE", "VirtualService", &labelled(label));
            assert!(!unnamed.allowed, "without a revision every object is read");
        }
        assert!(!review_of(&canary, "CREATE", "VirtualService", BAD).allowed);
    }

    #[test]
    fn a_doubt_is_a_warning() {
        let object = r#"{"metadata":{"name":"a.b","namespace":"n"},"spec":{"servers":[{"hosts":["*"],
            "port":{"number":80,"name":"http","protocol":"HTTP"}}]}}"#;
        let response = review("CREATE", "Gateway", object);
        assert!(response.allowed, "{response:?}");
        assert!(response.warnings[0].starts_with("metadata.name: "), "{response:?}");
    }

    #[test]
    fn a_field_of_a_newer_version_is_a_warning_with_a_hint() {
        let object = BAD.replace(r#""timeout":"soon""#, r#""tmeout":"1s""#);
        let response = review("CREATE", "VirtualService", &object);
        assert!(response.allowed, "{response:?}");
        let warning =
            "spec.http[0].tmeout: unknown to this version: it is ignored (did you mean \"timeout\"?)";
        assert_eq!(response.warnings, [warning]);
    }

    #[test]
    fn what_an_object_points_at_is_a_warning() {
        let object = r#"{"metadata":{"name":"a","namespace":"n"},"spec":{"hosts":["a"],"http":[{"route":[{"destination":{"host":"b"}}]}]}}"#;
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"7","name":"a","operation":"CREATE",
            "kind":{{"group":"networking.istio.io","version":"v1","kind":"VirtualService"}},"object":{object}}}}}"#
        );
        let missing =
            |object: &Object| vec![Problem::doubt("spec.http", format!("of {} missing", object.key()))];
        let validator = Validator::new(Vec::new()).with_analysis(Arc::new(missing));
        let response = validator.review(&parse(body.as_bytes()).unwrap());
        assert!(response.allowed, "{response:?}");
        assert_eq!(response.warnings, ["spec.http: of VirtualService n/a missing"]);
    }

    #[test]
    fn a_thousand_mistakes_are_counted() {
        let routes = vec!["{}"; 90].join(",");
        let object = format!(r#"{{"metadata":{{"name":"a"}},"spec":{{"hosts":["a"],"http":[{routes}]}}}}"#);
        let status = review("CREATE", "VirtualService", &object).status.unwrap();
        assert_eq!(status.message.lines().count(), MOST + 1);
        assert!(status.message.ends_with("and 70 more"), "{}", status.message);
    }
}
