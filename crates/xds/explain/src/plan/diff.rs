//! Text diffs of resources.

use serde_json::Value;
use similar::TextDiff;

/// Context lines around each difference.
const CONTEXT: usize = 3;

/// Unified diff of two resources in YAML. A missing one (`null`) has no lines.
#[must_use]
pub fn unified(before: &Value, after: &Value) -> String {
    let (before, after) = (yaml(before), yaml(after));
    let diff = TextDiff::from_lines(&before, &after);
    diff.unified_diff().context_radius(CONTEXT).to_string()
}

fn yaml(value: &Value) -> String {
    if value.is_null() {
        return String::new();
    }
    let text = serde_saphyr::to_string(value).unwrap_or_default();
    if text.ends_with('\n') { text } else { text + "\n" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_differs_is_shown() {
        let diff = unified(&json!({"name": "a", "port": 80}), &json!({"name": "a", "port": 81}));
        assert_eq!(diff, "@@ -1,2 +1,2 @@\n name: a\n-port: 80\n+port: 81\n");
        assert_eq!(unified(&Value::Null, &json!({"name": "a"})), "@@ -0,0 +1 @@\n+name: a\n");
    }
}
