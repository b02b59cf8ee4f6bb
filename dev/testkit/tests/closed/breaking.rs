//! Ways to break an object: one value at a time.

use serde_json::{Value, json};

/// Where in an object: names of fields and indices of lists.
pub(crate) type Place = Vec<String>;

/// All values below one.
pub(crate) fn places(value: &Value) -> Vec<Place> {
    let mut out = Vec::new();
    walk(value, &mut Vec::new(), &mut out);
    out
}

fn walk(value: &Value, at: &mut Place, out: &mut Vec<Place>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    for (name, child) in children {
        at.push(name);
        out.push(at.clone());
        walk(child, at, out);
        at.pop();
    }
}

/// What a value becomes.
pub(crate) const WAYS: usize = 10;

/// The object with the value at a place broken in one of [`WAYS`]; `None` where that way does not apply.
pub(crate) fn broken(object: &Value, place: &Place, way: usize) -> Option<Value> {
    let mut out = object.clone();
    let target = at(&mut out, place)?;
    let is_key = target.is_object();
    *target = match way {
        0 => json!([["of no use"]]),
        1 => json!({"unknown": {"field": true}}),
        2 => json!(70_000),
        3 => json!(-1),
        4 => json!(""),
        5 => json!("of(no[use%"),
        6 => json!([]),
        7 => json!([{"unknown": 1}]),
        8 if is_key => {
            target["unknown"] = json!("field");
            target.take()
        }
        9 if is_key => misspelled(target)?,
        _ => return None,
    };
    Some(out)
}

/// The first field under a name that is slightly wrong.
fn misspelled(value: &Value) -> Option<Value> {
    let mut fields = value.as_object()?.clone();
    let name = fields.keys().next()?.clone();
    let inner = fields.remove(&name)?;
    fields.insert(format!("{name}z"), inner);
    Some(fields.into())
}

fn at<'a>(value: &'a mut Value, place: &[String]) -> Option<&'a mut Value> {
    place.iter().try_fold(value, |value, step| match value {
        Value::Object(fields) => fields.get_mut(step),
        Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?),
        _ => None,
    })
}
