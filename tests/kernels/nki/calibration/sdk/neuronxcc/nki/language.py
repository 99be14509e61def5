"""Operations; a microkernel names them when it is called."""
