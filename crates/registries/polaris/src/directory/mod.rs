//! State of the namespaces that are read: a state machine without IO. Answers in, services and follow-up
//! questions out.
//!
//! Polaris has no pushes: each question carries the known revision, and is answered with "no change" or with
//! everything.

use crate::mapping::Mapping;
use crate::proto::{DiscoverRequest, DiscoverResponse, Instance, Kind, Service};
use pilotfish_registry::CatalogService;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Result codes. All others from 400,000 on are refusals.
const DONE: u32 = 200_000;
const NO_CHANGE: u32 = 200_001;
const NO_NEED: u32 = 200_002;
const NOT_FOUND: u32 = 400_202;

/// All services of the namespaces that are read.
#[derive(Debug)]
pub(crate) struct Directory {
    mapping: Mapping,
    namespaces: BTreeMap<String, Namespace>,
}

#[derive(Debug, Default)]
struct Namespace {
    /// Revision of the list of services.
    revision: Option<String>,
    services: BTreeMap<String, Known>,
}

/// State of a service.
#[derive(Debug, Default)]
struct Known {
    metadata: BTreeMap<String, String>,
    /// Revision of the instances.
    revision: Option<String>,
    /// `None` until they were read.
    instances: Option<Vec<Instance>>,
}

/// A question about a service, or about the list of services of the namespace if `service` is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question {
    pub(crate) namespace: String,
    pub(crate) service: String,
}

/// Changes caused by an answer.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Difference {
    /// Services with all of their instances.
    pub(crate) set: Vec<CatalogService>,
    /// Ids of removed services.
    pub(crate) removed: Vec<Arc<str>>,
    /// Questions for the instances of new services.
    pub(crate) ask: Vec<Question>,
}

/// Reason for rejecting an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnswerError {
    /// Polaris refused: missing permission, a limit, or an internal error.
    #[error("Polaris answered {code} ({info}) for {question}")]
    Refused { code: u32, info: String, question: String },
    /// The answer is about something that was not asked.
    #[error("Polaris answered about {0}, which was not asked")]
    NotAsked(String),
    /// The limit of services of one registry is exceeded.
    #[error("the namespace {namespace} has {count} services, more than {most}")]
    TooMany { namespace: String, count: usize, most: usize },
}

impl std::fmt::Display for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.service.is_empty() {
            write!(f, "the services of {}", self.namespace)
        } else {
            write!(f, "{}/{}", self.namespace, self.service)
        }
    }
}

impl Question {
    fn list(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), service: String::new() }
    }

    /// Returns the question of an answer.
    pub(crate) fn of(answer: &DiscoverResponse) -> Self {
        let service = answer.service.clone().unwrap_or_default();
        let namespace = service.namespace.unwrap_or_default();
        let is_list = answer.r#type == Kind::Services as i32;
        Self { namespace, service: if is_list { String::new() } else { service.name.unwrap_or_default() } }
    }
}

impl Directory {
    /// An empty directory of these namespaces.
    pub(crate) fn new(namespaces: &[String], mapping: Mapping) -> Self {
        let namespaces = namespaces.iter().map(|name| (name.clone(), Namespace::default())).collect();
        Self { mapping, namespaces }
    }

    /// Drops the revisions: the next answers are complete.
    pub(crate) fn begin(&mut self) {
        for namespace in self.namespaces.values_mut() {
            namespace.revision = None;
            for known in namespace.services.values_mut() {
                known.revision = None;
            }
        }
    }

    /// Returns the questions for the lists of services.
    pub(crate) fn lists(&self) -> Vec<Question> {
        self.namespaces.keys().map(|name| Question::list(name)).collect()
    }

    /// Returns all questions: the lists first, then each service.
    pub(crate) fn questions(&self) -> Vec<Question> {
        let services = self.namespaces.iter().flat_map(|(namespace, known)| {
            known
                .services
                .keys()
                .map(|service| Question { namespace: namespace.clone(), service: service.clone() })
        });
        self.lists().into_iter().chain(services).collect()
    }

    /// Returns the request of a question, with the known revision; `None` if the service is gone.
    pub(crate) fn request(&self, question: &Question) -> Option<DiscoverRequest> {
        let namespace = self.namespaces.get(&question.namespace)?;
        let (kind, revision) = if question.service.is_empty() {
            (Kind::Services, &namespace.revision)
        } else {
            (Kind::Instance, &namespace.services.get(&question.service)?.revision)
        };
        let service = Service {
            name: Some(question.service.clone()).filter(|name| !name.is_empty()),
            namespace: Some(question.namespace.clone()),
            revision: revision.clone(),
            ..Service::default()
        };
        Some(DiscoverRequest { r#type: kind as i32, service: Some(service) })
    }

    /// Returns all services whose instances were read.
    pub(crate) fn services(&self) -> Vec<CatalogService> {
        let all = self.namespaces.iter().flat_map(|(namespace, known)| {
            known.services.iter().filter_map(|(name, known)| self.service(namespace, name, known))
        });
        all.collect()
    }

    /// Handles an answer to a question.
    pub(crate) fn take(
        &mut self,
        question: &Question,
        answer: DiscoverResponse,
    ) -> Result<Difference, AnswerError> {
        let about = Question::of(&answer);
        // A refusal may not name its service.
        if answer.code.is_none_or(|code| code < 400_000) && about != *question {
            return Err(AnswerError::NotAsked(about.to_string()));
        }
        match answer.code.unwrap_or_default() {
            DONE => {}
            NO_CHANGE | NO_NEED => return Ok(Difference::default()),
            // Polaris's cache may not have the service yet, or no longer: the list of services decides.
            NOT_FOUND if !question.service.is_empty() => return Ok(Difference::default()),
            code => {
                let info = answer.info.unwrap_or_default();
                return Err(AnswerError::Refused { code, info, question: question.to_string() });
            }
        }
        if question.service.is_empty() {
            self.take_list(question, answer)
        } else {
            Ok(self.take_instances(question, answer))
        }
    }

    fn take_list(
        &mut self,
        question: &Question,
        answer: DiscoverResponse,
    ) -> Result<Difference, AnswerError> {
        let most = pilotfish_registry::MAX_SERVICES;
        let namespace = question.namespace.clone();
        if answer.services.len() > most {
            return Err(AnswerError::TooMany { namespace, count: answer.services.len(), most });
        }
        let Some(known) = self.namespaces.get_mut(&namespace) else {
            return Err(AnswerError::NotAsked(question.to_string()));
        };
        known.revision = answer.service.and_then(|service| service.revision);
        let mut before = std::mem::take(&mut known.services);
        let (mut difference, mut changed) = (Difference::default(), Vec::new());
        for service in answer.services {
            let Some(name) = service.name.filter(|name| !name.is_empty()) else { continue };
            let metadata: BTreeMap<String, String> = service.metadata.into_iter().collect();
            let mut entry = before.remove(&name).unwrap_or_else(|| {
                difference.ask.push(Question { namespace: namespace.clone(), service: name.clone() });
                Known::default()
            });
            if entry.metadata != metadata {
                entry.metadata = metadata;
                changed.push(name.clone());
            }
            known.services.insert(name, entry);
        }
        difference.removed = before.keys().map(|name| self.mapping.id(&namespace, name)).collect();
        let known = self.namespaces.get(&namespace).map(|known| &known.services);
        let entries = changed.iter().filter_map(|name| Some((name, known?.get(name)?)));
        difference.set = entries.filter_map(|(name, entry)| self.service(&namespace, name, entry)).collect();
        Ok(difference)
    }

    fn take_instances(&mut self, question: &Question, answer: DiscoverResponse) -> Difference {
        let services = self.namespaces.get_mut(&question.namespace).map(|known| &mut known.services);
        // The service may have left the list since the question.
        let Some(known) = services.and_then(|known| known.get_mut(&question.service)) else {
            return Difference::default();
        };
        known.revision = answer.service.and_then(|service| service.revision);
        known.instances = Some(answer.instances);
        let known =
            self.namespaces.get(&question.namespace).and_then(|known| known.services.get(&question.service));
        let set = known.and_then(|known| self.service(&question.namespace, &question.service, known));
        Difference { set: set.into_iter().collect(), ..Difference::default() }
    }

    fn service(&self, namespace: &str, name: &str, known: &Known) -> Option<CatalogService> {
        let instances = known.instances.as_ref()?;
        Some(self.mapping.service(namespace, name, &known.metadata, instances))
    }
}

#[cfg(test)]
mod tests;
