//! Decoding a file's text into objects.
//!
//! Documents are read separately: an error in one costs that one.

use super::limits::Limits;
use super::metadata::{ReadMetadata, read_metadata, revision_of};
use crate::kinds::content::{read_object, unknown_in_files, versions};
use crate::path::{FieldPath, printable};
use crate::problem::{ObjectCheck, Problem, did_you_mean};
use crate::validate::closed_object;
use crate::yaml::{Loaded, Node, load, shorten};
use pilotfish_model::{Kind, Object, ObjectKey};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Content of one file: objects, rejected objects and counts.
#[derive(Debug, Default)]
pub struct ReadFile {
    /// The objects that were read, in the file's order.
    pub objects: Vec<ReadObject>,
    /// The objects and documents that were rejected.
    pub rejected: Vec<Rejected>,
    /// Number of objects whose kind is not read, by `apiVersion kind`.
    pub ignored: BTreeMap<String, usize>,
    /// For each ignored object of a kind of Istio or the Gateway API: its document, and a warning that names
    /// it.
    pub unserved: Vec<(u32, Problem)>,
    /// True if a part of the file could not be split into objects, so that some may be missing from both
    /// lists.
    pub incomplete: bool,
}

/// An object that was read.
#[derive(Debug)]
pub struct ReadObject {
    /// The object. Its origin is file and line.
    pub object: Object,
    /// The document in the file, counted from 1.
    pub document: u32,
    /// The line that it begins on.
    pub line: u32,
    /// Warnings about the object.
    pub warnings: Vec<Problem>,
}

/// An object or a document that was rejected.
#[derive(Debug)]
pub struct Rejected {
    /// Key of the object, if it could be read.
    pub key: Option<ObjectKey>,
    /// Its label `istio.io/rev`, if it could be read.
    pub revision: Option<Arc<str>>,
    /// The document in the file, counted from 1.
    pub document: u32,
    /// The line that it begins on.
    pub line: u32,
    /// Problems of the object, at least one of which is an error.
    pub problems: Vec<Problem>,
    /// The object's closed form, in force where it has no last good version: it admits nothing that the
    /// intended object would refuse. `None` for kinds that restrict nothing, which can be left out without
    /// harm.
    pub closed: Option<Object>,
}

impl Rejected {
    /// A rejected object or document without a readable name.
    pub(super) fn nameless(document: u32, line: u32, problem: Problem) -> Self {
        Self { key: None, revision: None, document, line, problems: vec![problem], closed: None }
    }
}

/// Reads the objects of a YAML or JSON text. `file` is its name, for messages.
#[must_use]
pub fn read(file: &str, bytes: &[u8], limits: &Limits) -> ReadFile {
    read_checked(file, bytes, limits, &[])
}

/// As [`read`], with further checks of each object that is accepted.
#[must_use]
pub fn read_checked(file: &str, bytes: &[u8], limits: &Limits, checks: &[ObjectCheck]) -> ReadFile {
    let context = Context { file, checks };
    let mut read = ReadFile::default();
    let text = match text_of(bytes) {
        Ok(text) => text,
        Err(problem) => {
            read.broken(1, problem.line.unwrap_or(1), problem);
            return read;
        }
    };
    load(text, limits, |loaded| match loaded {
        Loaded::Document { number, root } => read.item(&context, number, &root, None),
        Loaded::Broken { number, line, message } => {
            read.broken(number, line, Problem::error(FieldPath::default(), message).at_line(line));
        }
    });
    read
}

/// Finds the lines of fields, each in the object that begins on a given line of the text, for problems that
/// appear only once all files are read. A missing field has the line of its object.
#[must_use]
pub fn lines_of(bytes: &[u8], limits: &Limits, fields: &[(u32, &str)]) -> Vec<u32> {
    let mut lines: Vec<u32> = fields.iter().map(|(object, _)| *object).collect();
    let Ok(text) = text_of(bytes) else { return lines };
    load(text, limits, |loaded| {
        let Loaded::Document { root, .. } = loaded else { return };
        let items = root.get("items").map_or(&[][..], Node::items);
        for object in std::iter::once(&root).chain(items) {
            for ((begin, path), line) in fields.iter().zip(&mut lines) {
                if *begin == object.line {
                    *line = object.line_of(&FieldPath::parse(path));
                }
            }
        }
    });
    lines
}

/// The bytes as text, without a byte order mark.
pub(crate) fn text_of(bytes: &[u8]) -> Result<&str, Problem> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = good.split(|byte| *byte == b'\n').count();
        let message = "not text in UTF-8";
        Problem::error(FieldPath::default(), message).at_line(u32::try_from(line).unwrap_or(u32::MAX))
    })
}

/// Context shared by all objects of a file.
struct Context<'a> {
    file: &'a str,
    checks: &'a [ObjectCheck],
}

/// `apiVersion` and `kind` of a list, which its items may leave out.
type Inherited<'a> = Option<(&'a str, &'a str)>;

impl ReadFile {
    fn broken(&mut self, document: u32, line: u32, problem: Problem) {
        self.incomplete = true;
        self.rejected.push(Rejected::nameless(document, line, problem));
    }

    fn reject(&mut self, document: u32, node: &Node, problem: Problem) {
        self.rejected.push(Rejected::nameless(document, node.line, problem));
    }

    /// Reads one object, or each item of a list.
    fn item(&mut self, context: &Context<'_>, document: u32, node: &Node, inherited: Inherited<'_>) {
        let text = |name| node.get(name).and_then(Node::text).filter(|text| !text.is_empty());
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let Some((api_version, kind)) = api_version.zip(kind).or(inherited) else {
            let missing = if api_version.is_some() { "kind" } else { "apiVersion" };
            let problem = Problem::error(FieldPath::default(), format!("not an object: it has no {missing}"));
            return self.reject(document, node, problem.at_line(node.line));
        };
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        if let Some(known) = Kind::find(group, kind).filter(|_| !versions(group).is_empty()) {
            return self.object(context, document, node, known, version);
        }
        match (kind.strip_suffix("List"), node.get("items")) {
            (Some(of), Some(items)) if inherited.is_none() => {
                let inherited = (!of.is_empty()).then_some((api_version, of));
                for item in items.items() {
                    self.item(context, document, item, inherited);
                }
            }
            _ => self.ignore(document, node, api_version, kind),
        }
    }

    fn object(&mut self, context: &Context<'_>, document: u32, node: &Node, kind: Kind, version: &str) {
        let line = node.line;
        let origin: Arc<str> = format!("{}:{line}", context.file).into();
        let ReadMetadata { key, meta, deleting, mut problems } = read_metadata(kind, node, origin.clone());
        let known = versions(kind.group());
        let is_known = known.contains(&version);
        let rejected = |key, line, problems: Vec<Problem>| {
            let closed = closed_object(kind, node, &origin, is_known, &problems);
            Rejected { key, revision: revision_of(node), document, line, problems, closed }
        };
        if !is_known {
            let message = format!(
                "version {:?} of {kind} is not known, it is read as {}",
                shorten(version),
                known.join(", ")
            );
            let line = node.get("apiVersion").map_or(line, |node| node.line);
            problems.push(Problem::error(FieldPath::default(), message).at_line(line));
            return self.rejected.push(rejected(key, line, problems));
        }
        let Some(meta) = meta else {
            return self.rejected.push(rejected(key, line, problems));
        };
        let decoded = read_object(kind, node, meta, deleting);
        problems.extend(decoded.problems);
        match decoded.object {
            Some(object) => {
                problems.extend(unknown_in_files(kind, node));
                let found = context.checks.iter().flat_map(|check| check(&object));
                problems.extend(found.map(|problem| {
                    let line = node.line_of(&problem.path);
                    problem.at_line(line)
                }));
                self.objects.push(ReadObject { object, document, line, warnings: problems });
            }
            None => self.rejected.push(rejected(key, line, problems)),
        }
    }

    /// Counts an object of a kind that is not read, unless its kind looks mistyped.
    fn ignore(&mut self, document: u32, node: &Node, api_version: &str, kind: &str) {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let same_group =
            Kind::ALL.iter().filter(|known| known.group() == group && group.ends_with("istio.io"));
        if let Some(hint) = did_you_mean(kind, same_group.map(|known| known.name())) {
            let line = node.get("kind").map_or(node.line, |node| node.line);
            let message = format!("there is no kind {kind:?} in {}", printable(api_version));
            let problem = Problem::error(FieldPath::default(), message);
            return self.reject(document, node, problem.at_line(line).with_hint(Some(hint)));
        }
        if belongs_to_mesh(group) {
            self.unserved.push((document, unserved(node, kind)));
        }
        let name = format!("{} {}", printable(api_version), printable(kind));
        *self.ignored.entry(name).or_default() += 1;
    }
}

/// Groups of the Gateway API, including the experimental one.
const GATEWAY_API_GROUPS: [&str; 2] = ["gateway.networking.k8s.io", "gateway.networking.x-k8s.io"];

/// True for the API groups of Istio and the Gateway API, whose objects are meant for a control plane.
#[must_use]
pub fn belongs_to_mesh(group: &str) -> bool {
    group.ends_with(".istio.io") || GATEWAY_API_GROUPS.contains(&group)
}

/// The warning for an object of a kind that is not served.
fn unserved(node: &Node, kind: &str) -> Problem {
    let text = |name| node.get("metadata").and_then(|metadata| metadata.get(name)).and_then(Node::text);
    let name = printable(text("name").unwrap_or("without a name"));
    let name = match text("namespace") {
        Some(namespace) => format!("{}/{name}", printable(namespace)),
        None => name.into_owned(),
    };
    let message = format!("{} {name} has no effect: this version does not serve its kind", printable(kind));
    Problem::warning(FieldPath::default(), message).at_line(node.line)
}
