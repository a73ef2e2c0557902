//! dure-vcpu
