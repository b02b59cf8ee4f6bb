//! Parser of YAML text into trees, one document at a time, within limits.

use super::node::{Entry, Node, NodeValue, shorten};
use crate::Limits;
use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};
use std::collections::{HashMap, HashSet};

/// Result of loading one document.
#[derive(Debug)]
pub(crate) enum Loaded {
    /// A document that is not empty.
    Document {
        /// Number of the document, counted from 1, including empty ones.
        number: u32,
        root: Node,
    },
    /// A document that could not be read. Reading resumes at the next one.
    Broken { number: u32, line: u32, message: String },
}

/// Reads the documents of a text and passes on each as soon as it is complete, so that only one is in memory.
///
/// A document with a mistake costs that document: reading resumes at the next `---`.
pub(crate) fn load(text: &str, limits: &Limits, mut each: impl FnMut(Loaded)) {
    let options = granit_parser::options! {
        flow_nesting_limit: limits.depth,
        block_nesting_limit: limits.depth,
        emit_comments: false,
    };
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut number = 0;
    loop {
        match next_document(&mut parser, limits, &mut number) {
            Ok(None) => return,
            Ok(Some(root)) if root.is_null() => {}
            Ok(Some(root)) => each(Loaded::Document { number, root }),
            Err(Failure { line, message }) => {
                each(Loaded::Broken { number: number.max(1), line, message });
                if !matches!(parser.proceed_next_document(), Ok(true)) {
                    return;
                }
            }
        }
    }
}

struct Failure {
    line: u32,
    message: String,
}

impl From<ScanError> for Failure {
    fn from(error: ScanError) -> Self {
        let mark = error.marker();
        Self {
            line: line(mark.line()),
            message: format!("not YAML: {} (column {})", error.info(), mark.col() + 1),
        }
    }
}

fn line(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Reads the next document's tree; `None` at the end of the text.
fn next_document<'a>(
    parser: &mut Parser<'a, StrInput<'a>>,
    limits: &Limits,
    number: &mut u32,
) -> Result<Option<Node>, Failure> {
    let mut builder =
        Builder { limits, open: Vec::new(), anchors: HashMap::new(), size: Size::default(), root: None };
    while let Some(event) = parser.next_event() {
        let (event, span) = event?;
        match event {
            Event::DocumentStart(..) => *number += 1,
            Event::DocumentEnd => {
                return Ok(Some(builder.root.unwrap_or_else(|| Node::null(line(span.start.line())))));
            }
            Event::StreamEnd => return Ok(None),
            event => builder.take(event, &span)?,
        }
    }
    Ok(None)
}

/// A collection whose end has not been read yet.
struct Open {
    line: u32,
    anchor: usize,
    /// Size of the document when the node began, from which the node's size follows at its end.
    before: Size,
    content: Content,
}

enum Content {
    Sequence(Vec<Node>),
    Mapping(Fields),
}

/// Size of a node, with aliases resolved.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    nodes: usize,
    /// Total length of the scalars.
    bytes: usize,
}

impl Size {
    fn plus(self, more: Self) -> Self {
        Self { nodes: self.nodes.saturating_add(more.nodes), bytes: self.bytes.saturating_add(more.bytes) }
    }

    fn since(self, before: Self) -> Self {
        Self {
            nodes: self.nodes.saturating_sub(before.nodes),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

#[derive(Default)]
struct Fields {
    entries: Vec<Entry>,
    /// Values of the merge key `<<`.
    merges: Vec<Node>,
    /// The key of the next value.
    key: Option<Key>,
}

struct Key {
    text: Box<str>,
    line: u32,
    merge: bool,
}

struct Builder<'a> {
    limits: &'a Limits,
    open: Vec<Open>,
    /// Anchored nodes with their sizes.
    anchors: HashMap<usize, (Node, Size)>,
    size: Size,
    root: Option<Node>,
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), Failure> {
        let line = line(span.start.line());
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let text: Box<str> = text.as_ref().into();
                let length = text.len();
                let is_text = tag.is_some_and(|tag| tag.is_yaml_core_schema_tag("str"));
                let value = match style {
                    ScalarStyle::Plain if !is_text => NodeValue::Plain(text),
                    _ => NodeValue::Quoted(text),
                };
                let size = Size { nodes: 1, bytes: length };
                self.count(size, line)?;
                self.finish(Node { line, value }, anchor, size)
            }
            Event::SequenceStart(_, anchor, _) => self.begin(line, anchor, Content::Sequence(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                self.begin(line, anchor, Content::Mapping(Fields::default()))
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(id) => {
                let Some((_, size)) = self.anchors.get(&id) else {
                    return Err(Failure {
                        line,
                        message: "an alias refers to something that contains it".to_owned(),
                    });
                };
                self.count(*size, line)?;
                let Some((node, size)) = self.anchors.get(&id).cloned() else { return Ok(()) };
                self.finish(node, 0, size)
            }
            _ => Ok(()),
        }
    }

    fn count(&mut self, more: Size, line: u32) -> Result<(), Failure> {
        self.size = self.size.plus(more);
        let Limits { nodes, text_bytes, .. } = *self.limits;
        if self.size.nodes > nodes {
            let message = format!("the document has more than {nodes} values, aliases resolved");
            return Err(Failure { line, message });
        }
        if self.size.bytes > text_bytes {
            let message = format!("the document has more than {text_bytes} bytes of text, aliases resolved");
            return Err(Failure { line, message });
        }
        Ok(())
    }

    fn begin(&mut self, line: u32, anchor: usize, content: Content) -> Result<(), Failure> {
        if self.open.len() >= self.limits.depth {
            let limit = self.limits.depth;
            return Err(Failure { line, message: format!("nested deeper than {limit} levels") });
        }
        let before = self.size;
        self.count(Size { nodes: 1, bytes: 0 }, line)?;
        self.open.push(Open { line, anchor, before, content });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Failure> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let value = match open.content {
            Content::Sequence(items) => NodeValue::Sequence(items),
            Content::Mapping(fields) => NodeValue::Mapping(fields.merged()?),
        };
        let size = self.size.since(open.before);
        self.finish(Node { line: open.line, value }, open.anchor, size)
    }

    /// Adds a complete node to the open collection, or makes it the root.
    fn finish(&mut self, node: Node, anchor: usize, size: Size) -> Result<(), Failure> {
        if anchor != 0 {
            self.count(size, node.line)?;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::Sequence(items)) => items.push(node),
            Some(Content::Mapping(fields)) => match fields.key.take() {
                None => fields.key = Some(Key::of(node)?),
                Some(key) if key.merge => fields.merges.push(node),
                Some(key) => fields.entries.push(Entry { key: key.text, line: key.line, value: node }),
            },
        }
        Ok(())
    }
}

impl Key {
    fn of(node: Node) -> Result<Self, Failure> {
        let line = node.line;
        match node.value {
            NodeValue::Plain(text) => Ok(Self { merge: &*text == "<<", text, line }),
            NodeValue::Quoted(text) => Ok(Self { merge: false, text, line }),
            _ => Err(Failure { line, message: "a list or an object cannot be a key".to_owned() }),
        }
    }
}

impl Fields {
    /// Refuses duplicate keys (one would be lost silently; Kubernetes refuses them as well) and resolves `<<:
    /// *anchor`: the fields of the anchored mappings that are not written beside it.
    fn merged(self) -> Result<Vec<Entry>, Failure> {
        let Self { mut entries, merges, .. } = self;
        let mut known = HashSet::with_capacity(entries.len());
        for entry in &entries {
            if !known.insert(entry.key.clone()) {
                let message = format!("field {:?} is written twice", shorten(&entry.key));
                return Err(Failure { line: entry.line, message });
            }
        }
        for merge in merges {
            let sources = match merge.value {
                NodeValue::Mapping(entries) => vec![entries],
                NodeValue::Sequence(items) => items.into_iter().filter_map(Node::into_entries).collect(),
                _ => {
                    return Err(Failure {
                        line: merge.line,
                        message: "'<<' needs an alias to an object".to_owned(),
                    });
                }
            };
            entries.extend(sources.into_iter().flatten().filter(|entry| known.insert(entry.key.clone())));
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        load(text, &Limits::default(), |loaded| {
            if let Loaded::Broken { number, line, message } = loaded {
                found.push(format!("{number}:{line}: {message}"));
            }
        });
        found
    }

    fn documents(text: &str) -> Vec<(u32, Node)> {
        let mut found = Vec::new();
        load(text, &Limits::default(), |loaded| {
            if let Loaded::Document { number, root } = loaded {
                found.push((number, root));
            }
        });
        found
    }

    #[test]
    fn documents_are_numbered_and_empty_ones_skipped() {
        let found = documents("a: 1\n---\n# nothing\n---\nb: 2\n");
        assert_eq!(found.iter().map(|(n, root)| (*n, root.line)).collect::<Vec<_>>(), [(1, 1), (3, 5)]);
        assert!(documents("").is_empty());
        assert!(documents("---\n---\n").is_empty());
        assert_eq!(documents("{\"a\": [1, 2]}").len(), 1);
    }

    #[test]
    fn a_broken_document_costs_that_document() {
        let text = "a: 1\n---\nb: [1\n---\nc: 3\n";
        assert_eq!(documents(text).iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 3]);
        let broken = broken(text);
        assert_eq!(broken.len(), 1);
        assert!(broken[0].starts_with("2:3: not YAML: "), "{broken:?}");
    }

    #[test]
    fn keys_written_twice_are_refused() {
        assert_eq!(broken("a: 1\nb: 2\na: 3\n"), ["1:3: field \"a\" is written twice"]);
    }

    #[test]
    fn aliases_and_merge_keys_are_resolved() {
        let found = documents("base: &b {x: 1, y: 2}\nmore:\n  <<: *b\n  y: 3\nsame: *b\n");
        let more = found[0].1.get("more").unwrap();
        assert_eq!(more.entries().len(), 2);
        assert_eq!(more.get("y").unwrap().describe(), "the number 3");
        assert_eq!(found[0].1.get("same").unwrap().entries().len(), 2);
        assert_eq!(broken("a: &a [*a]")[0], "1:1: an alias refers to something that contains it");
    }

    #[test]
    fn aliases_of_a_long_text_are_refused_early() {
        let text = format!("a: &a {}\nb: [{}]", "x".repeat(1 << 20), "*a, ".repeat(1_000));
        let limit = Limits::default().text_bytes;
        let message = format!("1:2: the document has more than {limit} bytes of text, aliases resolved");
        assert_eq!(broken(&text), [message]);
    }

    #[test]
    fn an_alias_bomb_is_refused_early() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let before = format!("*a{}, ", level - 1).repeat(10);
            text.push_str(&format!("a{level}: &a{level} [{before}]\n"));
        }
        assert!(
            broken(&text)[0].contains("the document has more than 2000000 values"),
            "{:?}",
            broken(&text)
        );
    }

    #[test]
    fn deep_nesting_is_refused() {
        let flow = "[".repeat(100_000);
        assert_eq!(broken(&flow).len(), 1);
        let mut block = String::new();
        for level in 0..500 {
            block.push_str(&format!("{}a:\n", " ".repeat(level)));
        }
        assert_eq!(broken(&block).len(), 1, "{:?}", broken(&block));
    }

    #[test]
    fn a_mapping_of_many_keys_takes_no_time() {
        let text: String = (0..100_000).map(|n| format!("k{n}: v\n")).collect();
        assert_eq!(documents(&text)[0].1.entries().len(), 100_000);
    }
}
