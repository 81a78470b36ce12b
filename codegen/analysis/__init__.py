"""What a layer computes: windows, products, ranges, operations, and sizes that suit the machine."""
