"""Networks in 8 bits: their times and errors beside other runtimes, and beside the same networks in f32."""
