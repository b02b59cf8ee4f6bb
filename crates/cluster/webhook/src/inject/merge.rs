//! Merges the output of a template into a Pod. The Pod's own fields take precedence.

use super::json::{Fields, Json};

/// Adds `addition`, a part of a Pod, to `pod`: labels, annotations and single fields that the Pod does not
/// have, and list entries with new names. Containers and volumes are appended; init containers come first if
/// one of them is a sidecar (`restartPolicy: Always`), which the Pod's own ones need, and last otherwise.
pub(crate) fn merge(pod: &mut Fields, addition: Json) {
    let Json::Map(addition) = addition else { return };
    for (part, value) in addition {
        match (part.as_str(), value) {
            ("metadata" | "spec", Json::Map(fields)) => {
                let Some(own) = map(pod, &part) else { continue };
                for (name, value) in fields {
                    field(own, name, value);
                }
            }
            (_, value) => {
                pod.entry(part).or_insert(value);
            }
        }
    }
}

/// Object field of that name, created if it is missing; `None` if the field has another type.
fn map<'a>(fields: &'a mut Fields, name: &str) -> Option<&'a mut Fields> {
    let value = fields.entry(name.to_owned()).or_insert_with(|| Json::Map(Fields::new()));
    if *value == Json::Null {
        *value = Json::Map(Fields::new());
    }
    match value {
        Json::Map(fields) => Some(fields),
        _ => None,
    }
}

fn field(own: &mut Fields, name: String, value: Json) {
    match (own.get_mut(&name), value) {
        (None | Some(Json::Null), value) => {
            own.insert(name, value);
        }
        (Some(Json::Map(own)), Json::Map(fields)) => {
            for (name, value) in fields {
                own.entry(name).or_insert(value);
            }
        }
        (Some(Json::List(own)), Json::List(items)) => {
            let first =
                name == "initContainers" && items.iter().any(|item| item.word("restartPolicy") == "Always");
            let known = |item: &Json| own.iter().any(|own| own.word("name") == item.word("name"));
            let new: Vec<_> = items.into_iter().filter(|item| !known(item)).collect();
            let place = if first { 0 } else { own.len() };
            own.splice(place..place, new);
        }
        // The Pod's own value takes precedence.
        (Some(_), _) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merged(pod: serde_json::Value, addition: serde_json::Value) -> serde_json::Value {
        let Json::Map(mut pod) = serde_json::from_value(pod).unwrap() else { panic!("a Pod is an object") };
        merge(&mut pod, serde_json::from_value(addition).unwrap());
        serde_json::to_value(Json::Map(pod)).unwrap()
    }

    #[test]
    fn fields_of_the_pod_win() {
        let pod = json!({"metadata": {"annotations": {"a": "own"}}, "spec": {"dnsPolicy": "None",
            "volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "app"}]}});
        let addition = json!({"metadata": {"annotations": {"a": "x", "b": "y"}, "labels": {"l": "m"}}, "spec": {
            "dnsPolicy": "Default", "hostname": "h", "volumes": [{"name": "v"}, {"name": "w"}], "containers": [{"name": "p"}]}});
        assert_eq!(
            merged(pod, addition),
            json!({"metadata": {"annotations": {"a": "own", "b": "y"}, "labels": {"l": "m"}}, "spec": {"dnsPolicy": "None",
                "hostname": "h", "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w"}],
                "containers": [{"name": "app"}, {"name": "p"}]}})
        );
    }

    #[test]
    fn sidecars_come_before_init_containers_that_need_them() {
        let order = |addition: serde_json::Value| {
            let pod = json!({"spec": {"initContainers": [{"name": "own"}]}});
            let merged = merged(pod, json!({"spec": {"initContainers": addition}}));
            let names: Vec<_> = merged["spec"]["initContainers"]
                .as_array()
                .unwrap()
                .iter()
                .map(|container| container["name"].as_str().unwrap().to_owned())
                .collect();
            names.join(" ")
        };
        assert_eq!(
            order(json!([{"name": "rules"}, {"name": "p", "restartPolicy": "Always"}])),
            "rules p own"
        );
        assert_eq!(order(json!([{"name": "rules"}])), "own rules");
    }
}
