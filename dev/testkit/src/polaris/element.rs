//! Elements of requests and responses: their fields, keys and strings.

use serde_json::{Map, Value, json};

/// One element of a request.
pub(super) type Element = Map<String, Value>;

pub(super) const NAMESPACE_FIELDS: &[&str] = &[
    "name",
    "comment",
    "owners",
    "token",
    "ctime",
    "mtime",
    "total_service_count",
    "total_health_instance_count",
    "total_instance_count",
    "[user_ids",
    "[group_ids",
    "[remove_user_ids",
    "[remove_group_ids",
    "id",
    "editable",
    "[service_export_to",
    "{metadata",
    "deleteable",
];
pub(super) const SERVICE_FIELDS: &[&str] = &[
    "name",
    "namespace",
    "{metadata",
    "ports",
    "business",
    "department",
    "cmdb_mod1",
    "cmdb_mod2",
    "cmdb_mod3",
    "comment",
    "owners",
    "token",
    "ctime",
    "mtime",
    "revision",
    "platform_id",
    "total_instance_count",
    "healthy_instance_count",
    "[user_ids",
    "[group_ids",
    "[remove_user_ids",
    "[remove_group_ids",
    "id",
    "editable",
    "[export_to",
    "deleteable",
];
pub(super) const INSTANCE_FIELDS: &[&str] = &[
    "id",
    "service",
    "namespace",
    "vpc_id",
    "host",
    "port",
    "protocol",
    "version",
    "priority",
    "weight",
    "enableHealthCheck",
    "healthCheck",
    "healthy",
    "isolate",
    "location",
    "{metadata",
    "logic_set",
    "ctime",
    "mtime",
    "revision",
    "service_token",
];
pub(super) const ANSWER_FIELDS: &[&str] = &[
    "client",
    "namespace",
    "service",
    "instance",
    "routing",
    "alias",
    "rateLimit",
    "circuitBreaker",
    "configRelease",
    "user",
    "userGroup",
    "authStrategy",
    "relation",
    "loginResponse",
    "modifyAuthStrategy",
    "modifyUserGroup",
    "resources",
    "optionSwitch",
    "instanceLabels",
    "data",
    "serviceContract",
];
pub(super) const LIST_FIELDS: &[&str] = &[
    "namespaces",
    "services",
    "instances",
    "routings",
    "aliases",
    "rateLimits",
    "configWithServices",
    "users",
    "userGroups",
    "authStrategies",
    "clients",
    "data",
];

/// [rec grpc-discover] Metadata that Discover adds to that of an instance, and that the console omits.
pub(super) const DERIVED: [&str; 5] = ["version", "protocol", "region", "zone", "campus"];

/// [rec headers] Object with all of its fields: `null`, or `[]` and `{}` for lists and maps.
pub(super) fn shaped(fields: &[&str], values: &Element) -> Value {
    let field = |field: &&str| {
        let (name, empty) = match field.split_at(1) {
            ("[", name) => (name, json!([])),
            ("{", name) => (name, json!({})),
            _ => (*field, Value::Null),
        };
        (name.to_owned(), values.get(name).filter(|value| !value.is_null()).cloned().unwrap_or(empty))
    };
    Value::Object(fields.iter().map(field).collect())
}

pub(super) fn text<'a>(element: &'a Element, name: &str) -> Option<&'a str> {
    element.get(name).and_then(Value::as_str)
}

pub(super) fn number(element: &Element, name: &str) -> Option<u64> {
    element.get(name).and_then(Value::as_u64)
}

/// [console] True for letters, digits and `- . / : _`.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-./:_".contains(&byte))
}

pub(super) fn sha1(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn now() -> Value {
    let seconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, so that leap days are at the end of years.
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + u64::from(month <= 2);
    json!(format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60))
}

pub(super) fn service_key(given: &Element) -> (String, String) {
    let part = |name| text(given, name).unwrap_or_default().to_owned();
    (part("namespace"), part("name"))
}

/// [rec instances-create] The given id, or else the SHA-1 of the key fields.
pub(super) fn instance_id(given: &Element) -> String {
    if let Some(id) = text(given, "id") {
        return id.to_owned();
    }
    let port = number(given, "port").unwrap_or_default().to_string();
    let parts = [
        text(given, "namespace"),
        text(given, "service"),
        text(given, "vpc_id"),
        text(given, "host"),
        Some(&port),
    ];
    sha1(&parts.iter().flatten().copied().collect::<Vec<_>>().join("##"))
}

/// True if only times and revisions differ.
pub(super) fn is_same(a: &Element, b: &Element) -> bool {
    let plain = |element: &Element| {
        let empty = |value: &Value| value.is_null() || *value == json!({}) || *value == json!("");
        let kept =
            element.iter().filter(|(name, value)| *name != "mtime" && *name != "revision" && !empty(value));
        kept.map(|(name, value)| (name.clone(), value.clone())).collect::<Element>()
    };
    plain(a) == plain(b)
}
