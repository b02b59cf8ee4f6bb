//! XML of instances: a registration as the JSON that it stands for, and instances as XML.
//!
//! Document types are refused and entities are the five of XML and numbers, so nothing expands.

use pilotfish_eureka_wire::{InstanceInfo, LeaseInfo, PortInfo, Text};
use quick_xml::Reader;
use quick_xml::escape::{escape, resolve_xml_entity};
use quick_xml::events::{BytesRef, BytesStart, Event};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Maximum depth of elements: an instance has three.
const MAX_DEPTH: usize = 8;

/// Error of a body that is no instance in XML.
#[derive(Debug, thiserror::Error)]
pub(crate) enum XmlError {
    #[error("{0}")]
    Syntax(#[from] quick_xml::Error),
    #[error("{0}")]
    Encoding(#[from] quick_xml::encoding::EncodingError),
    #[error("{0}")]
    Attribute(#[from] quick_xml::events::attributes::AttrError),
    #[error("a document type is not accepted")]
    DocumentType,
    #[error("the entity &{0}; is not accepted")]
    Entity(String),
    #[error("elements are nested deeper than {MAX_DEPTH}")]
    Depth,
    #[error("it has no element `instance`, or more than one root")]
    Root,
    #[error("it ends within an element")]
    Unfinished,
}

/// An element that is being read.
struct Open {
    name: String,
    fields: Map<String, Value>,
    text: String,
}

impl Open {
    fn new(start: &BytesStart<'_>) -> Result<Self, XmlError> {
        let mut fields = Map::new();
        // Looking for a name that is there twice would compare each with all others.
        for attribute in start.attributes().with_checks(false) {
            let attribute = attribute?;
            let key = String::from_utf8_lossy(attribute.key.as_ref()).into_owned();
            fields.insert(format!("@{key}"), attribute.unescape_value()?.into_owned().into());
        }
        let name = String::from_utf8_lossy(start.name().as_ref()).into_owned();
        Ok(Self { name, fields, text: String::new() })
    }

    /// Returns an object for an element with children, a text for one without, and null for an empty one.
    fn into_value(self) -> Value {
        let Self { mut fields, text, .. } = self;
        let has_children = fields.keys().any(|name| !name.starts_with('@'));
        if has_children || (!fields.is_empty() && text.is_empty()) {
            return Value::Object(fields);
        }
        match (fields.is_empty(), text.is_empty()) {
            (true, true) => Value::Null,
            (true, false) => Value::String(text),
            (false, _) => {
                fields.insert("$".to_owned(), Value::String(text));
                Value::Object(fields)
            }
        }
    }
}

/// Returns the JSON of an element `instance`.
pub(crate) fn read(xml: &str) -> Result<Value, XmlError> {
    let mut reader = Reader::from_str(xml);
    let mut open: Vec<Open> = Vec::new();
    let mut root = None;
    loop {
        match reader.read_event()? {
            Event::DocType(_) => return Err(XmlError::DocumentType),
            Event::Start(start) if open.len() < MAX_DEPTH => open.push(Open::new(&start)?),
            Event::Empty(start) if open.len() < MAX_DEPTH => close(Open::new(&start)?, &mut open, &mut root)?,
            Event::Start(_) | Event::Empty(_) => return Err(XmlError::Depth),
            Event::Text(text) => add(&mut open, &text.decode()?),
            Event::CData(text) => add(&mut open, &text.decode()?),
            Event::GeneralRef(entity) => add(&mut open, &resolve(&entity)?),
            Event::End(_) => {
                let ended = open.pop().ok_or(XmlError::Root)?;
                close(ended, &mut open, &mut root)?;
            }
            Event::Eof if open.is_empty() => return root.ok_or(XmlError::Root),
            Event::Eof => return Err(XmlError::Unfinished),
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
        }
    }
}

fn add(open: &mut [Open], text: &str) {
    if let Some(element) = open.last_mut() {
        element.text.push_str(text);
    }
}

fn resolve(entity: &BytesRef<'_>) -> Result<String, XmlError> {
    let name = entity.decode()?;
    let number = entity.resolve_char_ref().map_err(|_| XmlError::Entity(name.to_string()))?;
    let resolved = number.map(String::from).or_else(|| resolve_xml_entity(&name).map(str::to_owned));
    resolved.ok_or_else(|| XmlError::Entity(name.chars().take(32).collect()))
}

fn close(ended: Open, open: &mut [Open], root: &mut Option<Value>) -> Result<(), XmlError> {
    match open.last_mut() {
        Some(parent) => {
            parent.fields.insert(ended.name.clone(), ended.into_value());
        }
        None if root.is_none() && ended.name == "instance" => *root = Some(ended.into_value()),
        None => return Err(XmlError::Root),
    }
    Ok(())
}

/// Appends an element `instance`.
pub(crate) fn write(out: &mut String, info: &InstanceInfo) {
    out.push_str("<instance>");
    for (name, text) in [
        ("instanceId", &info.instance_id),
        ("hostName", &info.host_name),
        ("app", &info.app),
        ("appGroupName", &info.app_group_name),
        ("ipAddr", &info.ip_addr),
        ("sid", &info.sid),
        ("status", &info.status),
        ("overriddenstatus", &info.overridden_status),
    ] {
        text_element(out, name, text);
    }
    port(out, "port", info.port);
    port(out, "securePort", info.secure_port);
    text_element(out, "countryId", &info.country_id);
    data_center(out, info);
    if let Some(lease) = &info.lease_info {
        lease_info(out, lease);
    }
    map(out, "metadata", info.metadata.0.iter());
    for (name, text) in [
        ("homePageUrl", &info.home_page_url),
        ("statusPageUrl", &info.status_page_url),
        ("healthCheckUrl", &info.health_check_url),
        ("secureHealthCheckUrl", &info.secure_health_check_url),
        ("vipAddress", &info.vip_address),
        ("secureVipAddress", &info.secure_vip_address),
        ("isCoordinatingDiscoveryServer", &info.is_coordinating_discovery_server),
        ("lastUpdatedTimestamp", &info.last_updated_timestamp),
        ("lastDirtyTimestamp", &info.last_dirty_timestamp),
        ("actionType", &info.action_type),
        ("asgName", &info.asg_name),
    ] {
        text_element(out, name, text);
    }
    out.push_str("</instance>");
}

/// Appends an element with a text, unless the text is empty.
pub(crate) fn text_element(out: &mut String, name: &str, text: &Text) {
    if !text.is_empty() {
        element(out, name, &text.0);
    }
}

pub(crate) fn element(out: &mut String, name: &str, text: &str) {
    out.push_str(&format!("<{name}>{}</{name}>", escaped(text)));
}

/// Escapes a text. Characters that XML does not have are left out: one would break the whole answer.
fn escaped(text: &str) -> Cow<'_, str> {
    match text.chars().all(is_character) {
        true => escape(text),
        false => escape(text.chars().filter(|c| is_character(*c)).collect::<String>()),
    }
}

/// True for a character of XML 1.0.
fn is_character(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{FFFD}' | '\u{10000}'..=char::MAX)
}

fn port(out: &mut String, name: &str, port: Option<PortInfo>) {
    if let Some(PortInfo { number, enabled }) = port {
        out.push_str(&format!("<{name} enabled=\"{enabled}\">{number}</{name}>"));
    }
}

fn data_center(out: &mut String, info: &InstanceInfo) {
    let center = &info.data_center_info;
    out.push_str(&format!("<dataCenterInfo class=\"{}\">", escaped(&center.class.0)));
    text_element(out, "name", &center.name);
    if !center.metadata.is_empty() {
        map(out, "metadata", center.metadata.0.iter());
    }
    out.push_str("</dataCenterInfo>");
}

fn lease_info(out: &mut String, lease: &LeaseInfo) {
    out.push_str("<leaseInfo>");
    for (name, text) in [
        ("renewalIntervalInSecs", &lease.renewal_interval_in_secs),
        ("durationInSecs", &lease.duration_in_secs),
        ("registrationTimestamp", &lease.registration_timestamp),
        ("lastRenewalTimestamp", &lease.last_renewal_timestamp),
        ("evictionTimestamp", &lease.eviction_timestamp),
        ("serviceUpTimestamp", &lease.service_up_timestamp),
    ] {
        text_element(out, name, text);
    }
    out.push_str("</leaseInfo>");
}

/// Appends a map. Keys that are no names of elements have no form in XML and are left out.
fn map<'a>(out: &mut String, name: &str, entries: impl Iterator<Item = (&'a String, &'a String)>) {
    out.push_str(&format!("<{name}>"));
    for (key, value) in entries.filter(|(key, _)| is_name(key)) {
        element(out, key, value);
    }
    out.push_str(&format!("</{name}>"));
}

fn is_name(key: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    key.starts_with(is_first) && key.chars().all(|c| is_first(c) || c.is_ascii_digit() || "-.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"<?xml version="1.0"?>
        <instance><instanceId>a-1</instanceId><hostName>h</hostName><app>A</app><ipAddr>10.0.0.1</ipAddr>
        <status>UP</status><port enabled="true">8080</port><securePort enabled="false">443</securePort>
        <dataCenterInfo class="com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo"><name>MyOwn</name>
        </dataCenterInfo><leaseInfo><durationInSecs>9</durationInSecs></leaseInfo>
        <metadata><zone>z1</zone><text>a &lt;b&gt; &#38; c</text><data><![CDATA[<x>]]></data></metadata>
        <vipAddress>a</vipAddress></instance>"#;

    #[test]
    fn an_instance_is_the_json_that_it_stands_for() {
        let info: InstanceInfo = serde_json::from_value(read(FULL).unwrap()).unwrap();
        assert_eq!((&*info.instance_id.0, &*info.app.0), ("a-1", "A"));
        assert_eq!(info.port, Some(PortInfo { number: 8080, enabled: true }));
        assert_eq!(info.secure_port, Some(PortInfo { number: 443, enabled: false }));
        assert_eq!(&*info.data_center_info.name.0, "MyOwn");
        assert_eq!(&*info.lease_info.as_ref().unwrap().duration_in_secs.0, "9");
        let metadata: Vec<_> = info.metadata.0.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(metadata, [("data", "<x>"), ("text", "a <b> & c"), ("zone", "z1")]);

        let mut written = String::new();
        write(&mut written, &info);
        let again: InstanceInfo = serde_json::from_value(read(&written).unwrap()).unwrap();
        assert_eq!(again, info, "{written}");
    }

    #[test]
    fn empty_elements_are_absent() {
        let xml = r#"<instance><app>A</app><leaseInfo/><asgName/><metadata class="java.util.Collections$EmptyMap"/>
            </instance>"#;
        let info: InstanceInfo = serde_json::from_value(read(xml).unwrap()).unwrap();
        assert_eq!((info.lease_info, info.metadata.is_empty()), (None, true));
    }

    #[test]
    fn keys_that_are_no_names_have_no_form() {
        let mut info = InstanceInfo::default();
        for key in ["a.b", "a b", "1", "<x>", ""] {
            info.metadata.0.insert(key.into(), "v".into());
        }
        let mut written = String::new();
        write(&mut written, &info);
        assert!(written.contains("<metadata><a.b>v</a.b></metadata>"), "{written}");
    }

    #[test]
    fn characters_that_xml_does_not_have_are_left_out() {
        let mut info =
            InstanceInfo { home_page_url: "a\u{1}\u{FFFE}\t<\u{1F41F}".into(), ..InstanceInfo::default() };
        info.data_center_info.class = "b\u{0}\u{1F}c".into();
        let mut written = String::new();
        write(&mut written, &info);
        assert!(written.contains("<homePageUrl>a\t&lt;\u{1F41F}</homePageUrl>"), "{written}");
        assert!(written.contains("<dataCenterInfo class=\"bc\">"), "{written}");
    }

    #[test]
    fn the_last_of_attributes_with_one_name_counts() {
        let xml = r#"<instance><port enabled="false" enabled="true">80</port></instance>"#;
        assert_eq!(read(xml).unwrap(), serde_json::json!({"port": {"@enabled": "true", "$": "80"}}));
    }

    #[test]
    fn what_expands_or_is_no_instance_is_refused() {
        let deep = format!("<instance>{}", "<a>".repeat(100));
        let bomb = r#"<!DOCTYPE x [<!ENTITY a "aaaa">]><instance><app>&a;</app></instance>"#;
        for (xml, part) in [
            (bomb, "document type"),
            ("<instance><app>&a;</app></instance>", "entity &a;"),
            (&deep, "deeper than"),
            ("<application/>", "no element `instance`"),
            ("<instance/><instance/>", "more than one root"),
            ("", "no element `instance`"),
            ("<instance><app>", "ends within"),
            ("<instance></app>", ""),
        ] {
            let error = read(xml).map_err(|error| error.to_string()).expect_err(xml);
            assert!(error.contains(part), "{xml}: {error}");
        }
    }
}
