//! The resource types, one folder each, all in the same order: the view (which facets of a proxy count), the batches (what is
//! generated together), the generation.

pub(crate) mod cds;
pub(crate) mod ecds;
pub(crate) mod eds;
pub(crate) mod lds;
pub(crate) mod nds;
pub(crate) mod rds;
pub(crate) mod sds;

#[cfg(test)]
mod tests;
