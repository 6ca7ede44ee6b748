//! E0277: no permit has a default.
pub fn forge<P: Default>() -> P {
    P::default()
}

pub fn use_it() -> bailey_policy::RunListPermit {
    forge()
}
