//! Insertion of patched elements into lists.

use pilotfish_config::networking::PatchOperation;

/// Applies an operation that adds or replaces elements. `anchor` matches the element that the operation is
/// relative to, if the patch names one: without it, "before" is first and "after" is last, and there is
/// nothing to replace. Returns true if the list was changed.
pub(super) fn insert<T: Clone>(
    list: &mut Vec<T>,
    operation: PatchOperation,
    value: T,
    anchor: Option<&dyn Fn(&T) -> bool>,
) -> bool {
    let found = anchor.and_then(|anchor| list.iter().position(anchor));
    match (operation, anchor.is_some(), found) {
        (PatchOperation::InsertFirst, ..) | (PatchOperation::InsertBefore, false, _) => list.insert(0, value),
        (PatchOperation::Add, ..) | (PatchOperation::InsertAfter, false, _) => list.push(value),
        (PatchOperation::InsertBefore, true, Some(index)) => list.insert(index, value),
        (PatchOperation::InsertAfter, true, Some(index)) => list.insert(index + 1, value),
        (PatchOperation::Replace, true, Some(index)) => {
            if let Some(held) = list.get_mut(index) {
                *held = value;
            }
        }
        _ => return false,
    }
    true
}
