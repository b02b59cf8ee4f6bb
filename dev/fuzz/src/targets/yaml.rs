//! Parser of files, with any bytes.

use super::checks::{file, limits};
use pilotfish_config::read;

pub(super) fn run(bytes: &[u8]) {
    let whole = read("a.yaml", bytes, &limits());
    file(&whole);
    // An added document is parsed separately: its errors do not affect the ones before.
    let more = [
        bytes,
        b"\n--- {apiVersion: v1, kind: Service, metadata: {name: z, namespace: z}, \
        spec: {ports: [{port: 1}]}}\n",
    ];
    let longer = read("a.yaml", &more.concat(), &limits());
    if !whole.incomplete
        && whole.rejected.is_empty()
        && whole.ignored.is_empty()
        && longer.rejected.is_empty()
    {
        assert!(
            longer.objects.len() >= whole.objects.len(),
            "{} objects of {}",
            longer.objects.len(),
            whole.objects.len()
        );
    }
}
