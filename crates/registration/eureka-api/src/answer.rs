//! Bodies of answers: applications and instances as JSON or XML, in parts that are made when they are sent.

use crate::catalog::{Action, Applications, Entry, Selection};
use crate::wire::Form;
use crate::xml;
use bytes::Bytes;
use futures::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use pilotfish_registration_server::AdapterBody;
use std::convert::Infallible;
use std::sync::Arc;

/// Size in bytes at which a part of an answer is sent.
const PART: usize = 64 << 10;

/// An answer without a body.
pub(crate) fn empty(status: StatusCode) -> Response<AdapterBody> {
    let mut response = Response::new(Empty::new().boxed_unsync());
    *response.status_mut() = status;
    response
}

/// All applications of a selection.
pub(crate) fn applications(selection: Selection, form: Form) -> Response<AdapterBody> {
    let hash = &selection.hash;
    let (head, tail) = match form {
        Form::Json => (
            format!(r#"{{"applications":{{"versions__delta":"1","apps__hashcode":"{hash}","application":["#),
            "]}}",
        ),
        Form::Xml => (
            format!(
                "<applications><versions__delta>1</versions__delta><apps__hashcode>{hash}</apps__hashcode>"
            ),
            "</applications>",
        ),
    };
    let apps = Parts { form, open: None, apps: selection.applications.into_iter(), is_first: true };
    let parts = [head].into_iter().chain(apps).chain([tail.to_owned()]);
    let frames = parts.map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from(part))));
    respond(StreamBody::new(stream::iter(frames)).boxed_unsync(), form)
}

/// One application.
pub(crate) fn application(selection: Selection, form: Form) -> Response<AdapterBody> {
    let apps = Parts { form, open: None, apps: selection.applications.into_iter(), is_first: true };
    let (head, tail) = if form == Form::Json { (r#"{"application":"#, "}") } else { ("", "") };
    let parts = [head.to_owned()].into_iter().chain(apps).chain([tail.to_owned()]);
    let frames = parts.map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from(part))));
    respond(StreamBody::new(stream::iter(frames)).boxed_unsync(), form)
}

/// One instance.
pub(crate) fn instance(entry: &Entry, form: Form) -> Response<AdapterBody> {
    let mut body = String::new();
    if form == Form::Json {
        body.push_str(r#"{"instance":"#);
    }
    write_instance(&mut body, form, Action::Added, entry);
    if form == Form::Json {
        body.push('}');
    }
    respond(Full::new(Bytes::from(body)).boxed_unsync(), form)
}

/// A JSON document.
pub(crate) fn json(body: String) -> Response<AdapterBody> {
    respond(Full::new(Bytes::from(body)).boxed_unsync(), Form::Json)
}

fn respond(body: AdapterBody, form: Form) -> Response<AdapterBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(form.media()));
    response
}

/// Instances of an application.
type Instances = std::vec::IntoIter<(Action, Arc<Entry>)>;

/// Parts of a list of applications.
struct Parts {
    form: Form,
    /// The instances of the current application that are left; true before its first one.
    open: Option<(Instances, bool)>,
    apps: <Applications as IntoIterator>::IntoIter,
    is_first: bool,
}

impl Parts {
    fn begin(&mut self, out: &mut String, name: &str) {
        match self.form {
            Form::Json => {
                out.push_str(if self.is_first { "{\"name\":" } else { ",{\"name\":" });
                out.push_str(&serde_json::Value::from(name).to_string());
                out.push_str(",\"instance\":[");
            }
            Form::Xml => {
                out.push_str("<application>");
                xml::element(out, "name", name);
            }
        }
        self.is_first = false;
    }
}

impl Iterator for Parts {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut out = String::new();
        while out.len() < PART {
            let Some((instances, is_first)) = &mut self.open else {
                let Some((name, instances)) = self.apps.next() else { break };
                self.begin(&mut out, &name);
                self.open = Some((instances.into_iter(), true));
                continue;
            };
            match instances.next() {
                Some((action, entry)) => {
                    if self.form == Form::Json && !std::mem::take(is_first) {
                        out.push(',');
                    }
                    write_instance(&mut out, self.form, action, &entry);
                }
                None => {
                    self.open = None;
                    out.push_str(if self.form == Form::Json { "]}" } else { "</application>" });
                }
            }
        }
        (!out.is_empty()).then_some(out)
    }
}

fn write_instance(out: &mut String, form: Form, action: Action, entry: &Entry) {
    match form {
        // The document is an object: the statuses go before its first field.
        Form::Json => {
            let (status, overridden, action) = (entry.status.name(), entry.overridden.name(), action.name());
            out.push_str(&format!(
                r#"{{"status":"{status}","overriddenStatus":"{overridden}","actionType":"{action}","#
            ));
            out.push_str(entry.document.strip_prefix('{').unwrap_or("}"));
        }
        Form::Xml => xml::write(out, &entry.info(action)),
    }
}
