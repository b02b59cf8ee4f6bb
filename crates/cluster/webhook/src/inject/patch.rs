//! JSON patch (RFC 6902) between two values, limited to their differences.

use super::json::Json;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Step {
    /// Adds a field, or inserts an item before the one at that index.
    Add {
        /// Location as a JSON pointer.
        path: String,
        value: Json,
    },
    /// Removes a field or an item.
    Remove {
        /// Location as a JSON pointer.
        path: String,
    },
    /// Replaces a field's or item's value.
    Replace {
        /// Location as a JSON pointer.
        path: String,
        value: Json,
    },
}

/// Steps from `before` to `after`. The order of fields is ignored.
#[must_use]
pub fn diff(before: &Json, after: &Json) -> Vec<Step> {
    let mut steps = Vec::new();
    walk(before, after, &mut String::new(), &mut steps);
    steps
}

fn walk(before: &Json, after: &Json, path: &mut String, steps: &mut Vec<Step>) {
    match (before, after) {
        _ if before == after => {}
        (Json::Map(old), Json::Map(new)) => {
            for name in old.keys().filter(|name| !new.contains_key(*name)) {
                at(path, name, |path| steps.push(Step::Remove { path: path.clone() }));
            }
            for (name, value) in new {
                at(path, name, |path| match old.get(name) {
                    Some(old) => walk(old, value, path, steps),
                    None => steps.push(Step::Add { path: path.clone(), value: value.clone() }),
                });
            }
        }
        (Json::List(old), Json::List(new)) => items(old, new, path, steps),
        _ => steps.push(Step::Replace { path: path.clone(), value: after.clone() }),
    }
}

/// Differences of lists: detects items inserted at one position, and otherwise compares item by item.
fn items(old: &[Json], new: &[Json], path: &mut String, steps: &mut Vec<Step>) {
    let start = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let rest = old.len().min(new.len()) - start;
    let end = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(old, new)| old == new).count();
    let (old_middle, new_middle) = (&old[start..old.len() - end], &new[start..new.len() - end]);
    if old_middle.is_empty() {
        for (index, value) in new_middle.iter().enumerate() {
            at(path, &(start + index).to_string(), |path| {
                steps.push(Step::Add { path: path.clone(), value: value.clone() });
            });
        }
    } else if old_middle.len() == new_middle.len() {
        for (index, (old, new)) in old_middle.iter().zip(new_middle).enumerate() {
            at(path, &(start + index).to_string(), |path| walk(old, new, path, steps));
        }
    } else {
        steps.push(Step::Replace { path: path.clone(), value: Json::List(new.to_vec()) });
    }
}

/// Runs `inside` with the path extended by `name`.
fn at(path: &mut String, name: &str, inside: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    path.push_str(&name.replace('~', "~0").replace('/', "~1"));
    inside(path);
    path.truncate(length);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn value(json: &Value) -> Json {
        serde_json::from_value(json.clone()).unwrap()
    }

    fn steps(before: &Value, after: &Value) -> Value {
        serde_json::to_value(diff(&value(before), &value(after))).unwrap()
    }

    #[test]
    fn the_patch_has_only_what_differs() {
        let before = json!({"spec": {"containers": [{"name": "app"}], "x": 1}, "metadata": {"annotations": {"a": "b"}}});
        let after = json!({"spec": {"containers": [{"name": "app"}, {"name": "p"}], "initContainers": [{"name": "i"}]},
            "metadata": {"annotations": {"a": "b", "s.io/x~y": "c"}}});
        assert_eq!(
            steps(&before, &after),
            json!([
                {"op": "add", "path": "/metadata/annotations/s.io~1x~0y", "value": "c"},
                {"op": "remove", "path": "/spec/x"},
                {"op": "add", "path": "/spec/containers/1", "value": {"name": "p"}},
                {"op": "add", "path": "/spec/initContainers", "value": [{"name": "i"}]},
            ])
        );
        assert_eq!(
            steps(&json!([2, 3]), &json!([0, 1, 2, 3])),
            json!([
            {"op": "add", "path": "/0", "value": 0}, {"op": "add", "path": "/1", "value": 1}])
        );
        assert_eq!(steps(&before, &before), json!([]));
    }

    /// A patch carried out as API servers do it.
    fn apply(root: &mut Value, step: &Value) {
        let path = step["path"].as_str().unwrap();
        let Some((parent, name)) = path.rsplit_once('/') else {
            *root = step["value"].clone();
            return;
        };
        let name = name.replace("~1", "/").replace("~0", "~");
        match (root.pointer_mut(parent).unwrap(), step["op"].as_str().unwrap()) {
            (Value::Object(fields), "remove") => drop(fields.remove(&name).unwrap()),
            (Value::Object(fields), _) => drop(fields.insert(name, step["value"].clone())),
            (Value::Array(items), "add") => items.insert(name.parse().unwrap(), step["value"].clone()),
            (Value::Array(items), "replace") => items[name.parse::<usize>().unwrap()] = step["value"].clone(),
            other => panic!("{other:?}"),
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            (0..3i64).prop_map(Value::from),
            "[a~/]{0,2}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[ab~/]{1,2}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_patch_makes_one_value_of_another(before in values(), after in values()) {
            let patch = steps(&before, &after);
            let mut patched = before;
            for step in patch.as_array().unwrap() {
                apply(&mut patched, step);
            }
            prop_assert_eq!(patched, after);
        }
    }
}
