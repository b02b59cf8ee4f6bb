//! xDS protobuf types, type URLs, make-before-break order and descriptors.
